"""Pairs of recordings of the true game that share everything but one event, for the benchmarks of events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import report
from world_model.data.clips import Clip
from world_model.data.store import ClipStore

HORIZON = 12  # frames from the event's first on; what an event does shows within them


@dataclass(frozen=True)
class Twins:
    """One pair: the same frames first, then ``HORIZON`` frames without the event and with it."""

    without: Clip
    shown: Clip

    @property
    def kind(self) -> str:
        """The event's kind, one of `world_model.data.doom.events.BUILDERS`."""
        return self.shown.meta["event"]["kind"]

    @property
    def category(self) -> str:
        """The event's category, one of `world_model.data.doom.events.CATEGORIES`."""
        return self.shown.meta["event"]["category"]

    @property
    def level(self) -> str:
        """The seed of the level that it happens in."""
        return str(self.shown.meta["level_seed"])

    @property
    def after(self) -> tuple[np.ndarray, np.ndarray]:
        """Frames uint8 ``[HORIZON, H, W, 3]`` from the event's first on, without it and with it."""
        return self.without.frames[-HORIZON:], self.shown.frames[-HORIZON:]


def load_twins(folder: Path | None, *, split: str, per_kind: int, context: int, size: int, seed: int) -> list[Twins]:
    """The pairs of the given store, or of one that is recorded into ``data/`` now, unless it is there already.

    From a given store the last ``context + HORIZON`` frames of each clip are taken.

    Raises:
        ValueError: when there is nothing to record with, or the store holds no twins or too short ones.
    """
    frames = context + HORIZON
    if folder is None:
        report.require_engine()
        from world_model.data.doom.twins import record_twins

        out = Path("data") / f"twins-{split}-{size}px-{frames}frames-{per_kind}each-seed{seed}"
        store = record_twins(out, per_kind=per_kind, context=context, frames=frames, size=size, seed=seed, split=split)
    else:
        store = ClipStore(folder)
    if store.recipe.get("context", 0) < context or store.recipe["frames"] - store.recipe["context"] != HORIZON:
        raise ValueError(
            f"{store.path} holds no twins with at least {context} frames before the event and {HORIZON} from it on; "
            "leave --data out to record some"
        )
    clips = [store.window(k, store.length(k) - frames, frames) for k in range(len(store))]
    return [Twins(without, shown) for without, shown in zip(clips[::2], clips[1::2], strict=True)]
