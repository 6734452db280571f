"""Episodes as a store of clips, which ``wp2 train doom`` reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agents.record.plan import Plan
from world_model.checkpoint import find_world
from world_model.config import from_json
from world_model.data.clips import Clip
from world_model.data.store import ShardEntry, ShardWriter, write_manifest

SHARD_BYTES = 64 * 2**20  # of frames


def check(name: str, plan: Plan) -> None:
    """Refuse a world that draws more than one frame per step: clips hold an action row for every frame.

    Raises:
        ValueError: with the formats that take such a world.
        FileNotFoundError: when there is no such world.
    """
    if plan.world is None:
        return
    config = from_json((find_world(plan.world) / "config.json").read_text())
    frames = config.chunk_latents * config.codec.temporal_factor
    if frames > 1:
        raise ValueError(
            f"the world {plan.world!r} draws {frames} frames per step, and clips hold one; record it with --format "
            "minari or lerobot, which keep the last frame of each step"
        )


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
