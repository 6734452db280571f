"""A small store whose frames follow the actions: a striped picture that yaw scrolls sideways."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from world_model.checkpoint import save_world
from world_model.config import TINY
from world_model.controls import YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore, write_manifest
from world_model.world import World


def scrolling_clip(seed: int, length: int = 20, size: int = 32) -> Clip:
    rng = np.random.default_rng(seed)
    actions = np.zeros((length, 6), np.float32)
    actions[:, 4] = 1
    actions[1:, YAW] = rng.choice([-8.0, 0.0, 8.0], length - 1)
    picture = np.repeat(rng.integers(0, 256, (1, size // 4, 3)), 4, axis=1).repeat(size, axis=0).astype(np.uint8)
    offsets = np.cumsum(actions[:, YAW]).astype(int) // 2
    frames = np.stack([np.roll(picture, -offset, axis=1) for offset in offsets])
    captions = ((0, StructuredCaption("stripes")), (9, StructuredCaption("stripes", event="nothing much")))
    return Clip(frames, actions, captions)


@pytest.fixture(scope="session")
def stripes(tmp_path_factory) -> ClipStore:
    folder = tmp_path_factory.mktemp("stripes")
    entry = save_and_describe(folder)
    write_manifest(folder, [entry])
    return ClipStore(folder)


@pytest.fixture(scope="session")
def hasty_world(tmp_path_factory) -> Path:
    """A random world whose stages take small batches, and write a checkpoint after every step."""
    small = {"batch": 2, "frames": 5, "history": 4, "warmup_steps": 2, "checkpoint_minutes": 0.0}
    stages = {item.name: replace(getattr(TINY.curriculum, item.name), **small) for item in fields(TINY.curriculum)}
    folder = tmp_path_factory.mktemp("hasty")
    save_world(World.random(replace(TINY, curriculum=replace(TINY.curriculum, **stages))), folder, torch.float32)
    return folder


def save_and_describe(folder):
    from world_model.data.store import ShardWriter

    writer = ShardWriter(folder / "shard-00000.safetensors")
    for seed in range(6):
        writer.add(scrolling_clip(seed))
    return writer.close()
