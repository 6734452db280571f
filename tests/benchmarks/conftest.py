"""What the benchmarks' tests share: a tiny world that listens, and stores of made-up clips."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from world_model.data.clips import Clip
from world_model.data.store import ShardWriter, write_manifest
from world_model.world import World


@pytest.fixture(scope="session")
def listening_world() -> World:
    """A tiny world that listens to its controls: what starts at zero in training does not here."""
    world = World.random("tiny")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in world.parameters():
            if not parameter.any():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return world.requires_grad_(False)


@pytest.fixture(scope="session")
def write_store():
    """Writes clips into a new folder, as a store of one shard."""

    def write(folder: Path, clips: Iterable[Clip]) -> Path:
        folder.mkdir()
        writer = ShardWriter(folder / "shard-00000.safetensors")
        for clip in clips:
            writer.add(clip)
        write_manifest(folder, [writer.close()])
        return folder

    return write
