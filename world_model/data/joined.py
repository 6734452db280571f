"""Several stores of clips, read as one."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from world_model.data.clips import Clip
from world_model.data.store import ClipStore, ShardEntry, StoreError


class JoinedStore:
    """The clips of all stores in order: those of the first, then those of the second, and so on."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the stores at ``paths``.

        Raises:
            StoreError: when one is damaged, or their pictures differ in size.
        """
        self.stores = [ClipStore(path) for path in paths]
        self.ends = list(accumulate(len(store) for store in self.stores))
        sizes = {store[0].frames.shape[1:3]: store.path for store in self.stores if len(store)}
        if len(sizes) > 1:
            listed = ", ".join(f"{height}x{width} in {path}" for (height, width), path in sizes.items())
            raise StoreError(f"the stores hold pictures of different sizes ({listed}); give stores of one size")

    @property
    def entries(self) -> list[ShardEntry]:
        """The manifest entries of all stores."""
        return [entry for store in self.stores for entry in store.entries]

    @property
    def digest(self) -> str:
        """What tells these recordings from others: 16 hexadecimal digits over the checksums of all shards."""
        return hashlib.sha256("".join(entry.sha256 for entry in self.entries).encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> Clip:
        store, index = self._place(index)
        return store[index]

    def length(self, index: int) -> int:
        """The number of frames of a clip, without touching them."""
        store, index = self._place(index)
        return store.length(index)

    def window(self, index: int, start: int, length: int) -> Clip:
        """A part of a clip, see `ClipStore.window`."""
        store, index = self._place(index)
        return store.window(index, start, length)

    def _place(self, index: int) -> tuple[ClipStore, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"clip {index} is outside these stores of {len(self)} clips")
        which = bisect_right(self.ends, index)
        return self.stores[which], index - (self.ends[which] - len(self.stores[which]))
