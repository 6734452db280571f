"""Clips of a recording lie in shards of bounded size, and worlds that they cannot hold are refused before play."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.record import as_clips
from world_model.checkpoint import save_world
from world_model.config import TINY
from world_model.data.store import ClipStore
from world_model.world import World


def test_shards_are_filled_in_order(undisturbed, tmp_path, monkeypatch):
    clips = list(ClipStore(undisturbed))
    monkeypatch.setattr(as_clips, "SHARD_BYTES", clips[0].frames.nbytes + clips[1].frames.nbytes)
    as_clips.write(tmp_path, clips, "walks", {"policy": "random"})
    store = ClipStore(tmp_path)
    bytes_of = [shard.tensors["frames"].nbytes for shard in store.shards]
    assert len(store.shards[0].lengths) == 2 and len(bytes_of) > 1 and max(bytes_of) <= 2 * clips[0].frames.nbytes
    assert store.recipe == {"policy": "random"}
    for clip, kept in zip(clips, store, strict=True):
        np.testing.assert_array_equal(clip.frames, kept.frames)
        assert clip.meta == kept.meta and clip.captions == kept.captions


def test_a_world_of_several_frames_per_step_is_refused(recorded, tmp_path):
    chunked = replace(TINY, chunk_latents=4, codec=replace(TINY.codec, temporal_factor=4))
    save_world(World.random(chunked, seed=0), tmp_path / "chunked")
    with pytest.raises(
        ValueError, match="draws 16 frames per step, and clips hold one; record it with --format minari"
    ):
        recorded(world=str(tmp_path / "chunked"))
    assert not (tmp_path / "walks-v0").exists()
