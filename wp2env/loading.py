"""Loaded worlds of this process: environments of the same world share one network."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from world_model import checkpoint
from wp2env.starts import stamp

KEPT_WORLDS = 4  # loaded networks that stay in memory when no environment uses them


class WorldHandle:
    """A world that is loaded when it is first needed and pickled without its weights.

    ``world`` is the name of a bundled world, a folder, or a world object. An object that came from a folder is
    pickled as that folder; one without a folder (random weights) has to travel with its weights. Copies within the
    process share the network, whatever has become of the folder since.

    Raises:
        FileNotFoundError: from `get`, when there is no such world.
        ValueError: for something that is no world; from `get`, for a damaged world, or a device or dtype that is not
            there.
    """

    def __init__(self, world: Any, device: str, dtype: str = "float32") -> None:
        named = isinstance(world, (str, os.PathLike))
        if not named and not hasattr(world, "stream"):
            raise ValueError(f"the world is {world!r:.60}; name a bundled one, give a folder, or a world object")
        self.device, self.dtype = device, dtype
        self.name = world if named else getattr(world, "path", None)
        self._world = None if named else world

    def get(self) -> Any:
        """The world, its network in evaluation mode on the device."""
        if self._world is None:
            folder = checkpoint.find_world(self.name)
            self._world = _load(folder, self.device, self.dtype, _stamp(folder))
        return self._world

    @property
    def folder(self) -> Path | None:
        """The world's folder; None for a world that was never saved."""
        path = getattr(self.get(), "path", None)
        return None if path is None else Path(path)

    def __deepcopy__(self, memo: dict[int, Any]) -> WorldHandle:
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self.name is not None:
            state["_world"] = None
        return state


@lru_cache(maxsize=KEPT_WORLDS)
def _load(folder: Path, device: str, dtype: str, written: tuple[int, ...]) -> Any:
    return checkpoint.load_world(folder, device, dtype)


def _stamp(folder: Path) -> tuple[int, ...]:
    """Changes when the world is saved again, so that a trained world is not mistaken for its older self."""
    files = [folder / "config.json", folder / checkpoint.WEIGHTS]
    return tuple(number for file in files if file.is_file() for number in stamp(file))
