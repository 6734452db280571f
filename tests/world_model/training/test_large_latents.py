"""What a large world learns from: recordings cut into videos that begin as its rollouts do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from world_model.config import TrainingConfig
from world_model.controls import JUMP, LONGITUDINAL, PERSPECTIVE, PITCH, YAW
from world_model.data.joined import JoinedStore
from world_model.large.conditioning import Picture, shrunk, small_video
from world_model.large.folder import LargeWorld
from world_model.training.large_latents import LargeLatentStore, cut, encode_take, latent_rows


class Codec(nn.Module):
    """The toy codec as a module, with what tells its device."""

    def __init__(self, blocks) -> None:
        super().__init__()
        self.encode, self.decode = blocks.encode, blocks.decode
        self.register_buffer("latent_mean", torch.zeros(1))


@pytest.fixture
def store_of(wide_stripes, single, blocks):
    def make(large=None, **settings):
        settings = TrainingConfig(**{"frames": 8, **settings})
        large = large or LargeWorld(single, "base")
        return LargeLatentStore(JoinedStore([wide_stripes.path]), Codec(blocks), large, settings)

    return make


def test_recordings_are_cut_into_whole_chunks():
    assert list(cut(67, most=8, chunk=4)) == [(0, 8), (32, 8)]
    assert list(cut(61, most=12, chunk=4)) == [(0, 12), (48, 4)]
    assert list(cut(61, most=16, chunk=4)) == [(0, 16)]
    assert list(cut(12, most=8, chunk=4)) == []


def test_a_latent_s_row_is_what_its_frames_did():
    rows = np.zeros((9, 6), np.float32)
    rows[:, PERSPECTIVE] = 1
    rows[0, YAW] = 90  # led to the first frame from before the recording
    rows[1:5, YAW], rows[1:5, PITCH], rows[5:, YAW] = (1, 2, 3, 4), -1, 2
    rows[1:4, LONGITUDINAL], rows[6, LONGITUDINAL], rows[7, JUMP] = 1, -1, 1
    merged = latent_rows(rows)
    assert merged[:, YAW].tolist() == [90, 10, 8] and merged[:, PITCH].tolist() == [0, -4, 0]
    assert merged[:, LONGITUDINAL].tolist() == [0, 1, 0] and merged[:, JUMP].tolist() == [0, 0, 1]
    assert merged[:, PERSPECTIVE].tolist() == [1, 1, 1]


def test_a_take_is_encoded_as_a_rollout_would_see_it(blocks):
    frames = torch.rand(29, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    latents, coarse, condition, coarse_condition = encode_take(frames, blocks, 4)
    assert torch.equal(latents, blocks.encode(frames[None])[0][0])
    first, second = frames[None, :13], frames[None, 13:]
    small, state = blocks.encode(small_video(first))
    assert torch.equal(coarse, torch.cat([small, blocks.encode(small_video(second), state)[0]], dim=1)[0])
    picture, small_picture = Picture(frames[0]), Picture(shrunk(frames[0]))
    for chunk in range(2):
        piece, picture = picture.condition(blocks, 4)
        small_piece, small_picture = small_picture.condition(blocks, 2)
        assert torch.equal(condition[4 * chunk : 4 * chunk + 4], piece[0])
        assert torch.equal(coarse_condition[2 * chunk : 2 * chunk + 2], small_piece[0])


def test_windows_begin_with_a_take_and_tell_its_picture(store_of, single):
    store = store_of()
    assert [len(clip.latents) for clip in store.clips] == [8, 8] * 3
    batch = store.windows(4, 8, torch.Generator().manual_seed(0))
    shapes = {name: tuple(value.shape[1:]) for name, value in batch.items()}
    assert shapes["condition"] == (8, 8, 8, 8) and shapes["coarse_condition"] == (8, 8, 2, 2)
    assert shapes["latents"] == (8, 4, 8, 8) and shapes["coarse"] == (8, 4, 2, 2) and shapes["codes"][1:] == (1,)
    assert torch.equal(batch["sink"], batch["latents"][:, 0])
    assert batch["condition"][:, 0, :4].eq(1).all() and batch["condition"][:, 1:, :4].eq(0).all()
    assert torch.equal(batch["condition"][:, 0, 4:], batch["latents"][:, 0])
    assert torch.equal(batch["coarse"][:, 0::2], batch["coarse"][:, 1::2])
    assert batch["given"].tolist() == [[True] + [False] * 7] * 4
    unclean = store_of(LargeWorld(replace(single, clean_picture=False), "base"))
    assert not unclean.windows(1, 4, torch.Generator())["given"].any()


def test_a_caption_holds_for_whole_chunks(store_of):
    store = store_of()
    assert store.captions == [
        "The scene in the video is: stripes.",
        "The scene in the video is: stripes. The event is: nothing much.",
    ]
    first, second = store.clips[0].texts[:, 0].tolist(), store.clips[1].texts[:, 0].tolist()
    assert first == [0] * 4 + [1] * 4 and second == [1] * 8  # it changes with frame 9, of the first chunk's 13
    batch = store.windows(8, 8, torch.Generator().manual_seed(1))
    assert batch["codes"].amin() == 0 and batch["codes"].amax() == 2  # 0 stands where a window has one caption less


def test_clips_of_another_length_than_chunks_are_refused(store_of):
    with pytest.raises(ValueError, match="clips of 6 latents do not split into chunks of 4; give --set STAGE.frames"):
        store_of(frames=6)
