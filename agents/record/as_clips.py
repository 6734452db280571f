"""Episodes as a store of clips, which ``wp2 train doom`` reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from world_model.data.clips import Clip
from world_model.data.store import ShardEntry, ShardWriter, write_manifest

SHARD_BYTES = 64 * 2**20  # of frames


def check(name: str) -> None:
    """Any folder will do, and no package is needed."""


def write(folder: Path, clips: Iterable[Clip], name: str, about: dict) -> None:
    """Fill ``folder`` with shards and a manifest whose recipe is ``about``."""
    entries: list[ShardEntry] = []
    writer, held = _shard(folder, 0), 0
    for clip in clips:
        if held and held + clip.frames.nbytes > SHARD_BYTES:
            entries.append(writer.close())
            writer, held = _shard(folder, len(entries)), 0
        writer.add(clip)
        held += clip.frames.nbytes
    write_manifest(folder, [*entries, writer.close()], about)


def _shard(folder: Path, number: int) -> ShardWriter:
    return ShardWriter(folder / f"shard-{number:05d}.safetensors")
