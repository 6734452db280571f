"""The child process of ``record doom``: records the clips of one shard after the other."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from world_model.data.doom.recipe import CLIPS_PER_LEVEL, Recipe
from world_model.data.store import Shard, ShardWriter, StoreError, save_clips

SHARD_BYTES = 64 * 2**20  # of frames; small enough to share out among workers, large enough to map few files
ENGINE_DIED = 70  # exit code of a child whose engine process went away


@dataclass(frozen=True)
class Job:
    """The clips of one shard."""

    shard: int
    clips: range

    @property
    def file(self) -> str:
        """The shard's file name."""
        return f"shard-{self.shard:05d}.safetensors"

    def parts(self, out: Path) -> Path:
        """The folder that holds the finished clips while the shard is being recorded."""
        return out / f".shard-{self.shard:05d}"


def jobs(recipe: Recipe, clips: int) -> list[Job]:
    """All shards of a recording. A shard's share of clips does not depend on their total number."""
    clip_bytes = recipe.frames * recipe.size**2 * 3
    per_shard = max(1, SHARD_BYTES // clip_bytes // CLIPS_PER_LEVEL) * CLIPS_PER_LEVEL
    starts = range(0, clips, per_shard)
    return [Job(k, range(start, min(start + per_shard, clips))) for k, start in enumerate(starts)]


def serve(report: Connection, core: int, out: Path, recipe: Recipe) -> None:
    """Record the jobs that arrive as ``(job, lost clips)`` until None arrives; the main function of the child.

    Reports ``("began", clip)``, ``("recorded", clip)``, ``("shard", manifest entry or None)`` and, before it gives up,
    ``("failed", why)``. Engine and recorder share one core, because their lock step is twice as fast there.
    """
    os.setpgrp()  # one group with the engine, so that the parent can end both
    os.set_inheritable(report.fileno(), False)  # or the engine would keep the pipe open after this process has died
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engine is closed on the way out
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    try:
        while (order := report.recv()) is not None:
            job, lost = order
            parts = job.parts(out)
            parts.mkdir(exist_ok=True)
            missing = [index for index in job.clips if index not in lost and not _is_whole(_part(parts, index))]
            if missing:
                _record_clips(missing, parts, recipe, report)
            report.send(("shard", _assemble(out / job.file, job, parts)))
    except (EOFError, ConnectionError):
        sys.exit(1)  # the parent is gone, and nobody needs a traceback
    except OSError as error:  # a full disk: no other child could do better
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process is ending; to exit amid clean-up is a traceback
        report.send(("failed", str(error)))


def _part(parts: Path, index: int) -> Path:
    return parts / f"{index:07d}"


def _is_whole(part: Path) -> bool:
    try:
        return len(Shard(part).lengths) == 1
    except StoreError:
        return False


def _record_clips(clips: list[int], parts: Path, recipe: Recipe, report: Connection) -> None:
    from vizdoom import ViZDoomErrorException, ViZDoomUnexpectedExitException

    from world_model.data.doom.studio import open_studio  # here, because it needs the optional extra vizdoom

    try:
        with open_studio(recipe, clips) as studio:
            for index in clips:
                report.send(("began", index))
                save_clips(_part(parts, index), [studio.record(index)])
                report.send(("recorded", index))
    except (ViZDoomErrorException, ViZDoomUnexpectedExitException):
        sys.exit(ENGINE_DIED)  # without a traceback; the parent says which clip it was


def unpack(path: Path, parts: Path) -> None:
    """Lay the clips of a shard back among the finished ones, so that only the missing ones are recorded."""
    parts.mkdir(exist_ok=True)
    shard = Shard(path)
    for clip, length in enumerate(shard.lengths):
        part = _part(parts, shard.notes[clip]["meta"]["clip"])
        if not _is_whole(part):
            save_clips(part, [shard.window(clip, 0, length)])


def _assemble(path: Path, job: Job, parts: Path):
    """Join the finished clips into the shard; its manifest entry, or None if every clip was lost."""
    writer = ShardWriter(path)
    for part in filter(_is_whole, (_part(parts, index) for index in job.clips)):
        shard = Shard(part)
        writer.add(shard.window(0, 0, shard.lengths[0]))
    entry = writer.close() if writer.clips else None
    shutil.rmtree(parts)
    return entry
