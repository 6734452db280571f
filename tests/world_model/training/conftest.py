"""A small store whose frames follow the actions: a striped picture that yaw scrolls sideways."""

from __future__ import annotations

import numpy as np
import pytest

from world_model.controls import YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore, write_manifest


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


def save_and_describe(folder):
    from world_model.data.store import ShardWriter

    writer = ShardWriter(folder / "shard-00000.safetensors")
    for seed in range(6):
        writer.add(scrolling_clip(seed))
    return writer.close()
