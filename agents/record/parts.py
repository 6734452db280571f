"""Finished episodes on disk while the others are still to be played, and what they belong to."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from agents.record.plan import identity
from world_model.data.clips import Clip
from world_model.data.store import MANIFEST, Shard, StoreError, save_clips, write_json

RECORDING, PARTS, ASSEMBLING = "recording.json", ".parts", ".assembling"


class Parts:
    """A recording's folder: ``recording.json`` tells its recipe, ``.parts`` holds a file per finished episode.

    An episode counts when its file is whole, and its file appears under its name only then. The dataset is assembled
    from all of them once none is missing; the parts are removed after that.
    """

    def __init__(self, out: Path, recipe: dict, episodes: int) -> None:
        """Open a folder, or make one.

        Raises:
            ValueError: when it holds another recording, is no folder, or another process records into it.
            OSError: when it cannot be written to.
        """
        self.out, self.recipe, self.episodes = out, recipe, episodes
        self.done: set[int] = set()
        self._lock = None
        told = self._told()
        self.complete = told is not None and told["complete"]
        if self.complete:
            self._compare(told)
            self.done = set(range(episodes))
            self._sweep()
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(f"{out} cannot be made a folder, since a file is there; choose another one") from None
        self._lock = open(self._folder / "lock", "w")  # released by the system, however this process ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process records into {out}; wait for it, or choose another folder") from None
        self.done = {episode for episode in map(_number, self._folder.glob("*.clip")) if self._is_whole(episode)}
        if told is not None and self.done:  # before the first episode the folder may still become another recording
            self._compare(told)

    def add(self, episode: int, clip: Clip) -> None:
        """Write a finished episode; one that is there already is kept."""
        if not self.done:
            self._tell(complete=False)
        if episode not in self.done and episode < self.episodes:
            save_clips(self._part(episode), [clip])
            self.done.add(episode)

    @property
    def missing(self) -> int:
        """How many episodes are still to be played."""
        return self.episodes - len(self.done & set(range(self.episodes)))

    def clips(self) -> Iterator[Clip]:
        """The episodes in order."""
        for episode in range(self.episodes):
            shard = Shard(self._part(episode))
            yield shard.window(0, 0, shard.lengths[0])

    def assemble(self, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill a fresh folder and move what it wrote into place, a manifest last; then drop the parts."""
        fresh = self.out / ASSEMBLING
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        write(fresh)
        for path in sorted(fresh.iterdir(), key=lambda path: path.name == MANIFEST):
            target = self.out / path.name
            if target.is_dir():
                shutil.rmtree(target)  # of an assembly that was broken off
            os.replace(path, target)
        self._tell(complete=True)
        self._sweep()

    def close(self) -> None:
        """Let other processes record into the folder; leave nothing behind where nothing was recorded."""
        if self._lock is None:
            return
        if not self.done:
            (self._folder / "lock").unlink(missing_ok=True)
            with suppress(OSError):  # what is not empty stays
                self._folder.rmdir()
                self.out.rmdir()
        self._lock.close()

    def _compare(self, told: dict) -> None:
        held, asked = identity(told["recipe"]), identity(self.recipe)
        differs = [name for name in {**held, **asked} if held.get(name) != asked.get(name)]
        if differs:
            was, now = ({name: one.get(name) for name in differs} for one in (held, asked))
            raise ValueError(f"{self.out} holds a recording with {was}, not {now}; choose another folder")
        if told["complete"] and told["episodes"] != self.episodes:
            raise ValueError(
                f"{self.out} holds a complete recording of {told['episodes']} episodes, not {self.episodes}; "
                "record more into another folder, with another --seed"
            )

    def _told(self) -> dict | None:
        """What the folder says of itself; None for a fresh one."""
        path = self.out / RECORDING
        try:
            told = json.loads(path.read_text())
            return {name: told[name] for name in ("recipe", "episodes", "complete")}
        except (FileNotFoundError, NotADirectoryError):
            ours = {PARTS, ASSEMBLING, RECORDING + ".tmp"}
            if self.out.is_dir() and {path.name for path in self.out.iterdir()} - ours:
                raise ValueError(f"{self.out} holds files that are no recording; choose another folder") from None
            return None
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} tells of no recording ({error}); restore it or choose another folder") from error

    def _tell(self, complete: bool) -> None:
        write_json(self.out / RECORDING, {"complete": complete, "episodes": self.episodes, "recipe": self.recipe})

    def _sweep(self) -> None:
        shutil.rmtree(self.out / ASSEMBLING, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_whole(self, episode: int) -> bool:
        try:
            return Shard(self._part(episode)).notes[0]["meta"]["episode"] == episode
        except (StoreError, LookupError):
            return False

    def _part(self, episode: int) -> Path:
        return self._folder / f"{episode:07d}.clip"

    @property
    def _folder(self) -> Path:
        return self.out / PARTS


def _number(part: Path) -> int:
    return int(part.stem) if part.stem.isdigit() else -1
