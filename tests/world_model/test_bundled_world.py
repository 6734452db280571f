"""The world that ships: it loads, it follows its controls, and it knows which row led to which frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from world_model.checkpoint import load_world
from world_model.codec import to_uint8, to_unit
from world_model.controls import StructuredCaption
from world_model.data.store import ClipStore
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.latents import LatentStore
from world_model.training.loop import step_generator

CLIPS, FRAMES = 8, 40


@pytest.fixture(scope="module")
def world():
    return load_world("doom")


@pytest.fixture(scope="module")
def held_out(tmp_path_factory) -> ClipStore:
    pytest.importorskip("vizdoom")
    from world_model.data.doom.record import record

    folder = tmp_path_factory.mktemp("held-out")
    record(folder, clips=CLIPS, frames=FRAMES, size=64, seed=3, workers=1, split="test", progress=False)
    return ClipStore(folder)


def test_it_fits_the_tree_and_brings_its_card(world):
    assert (world.path / "world.safetensors").stat().st_size <= 20e6
    card = (world.path / "card.md").read_text()
    assert "wp2 train doom" in card and "Freedoom" in card


def test_the_codec_reconstructs_held_out_frames(world, held_out):
    frames = torch.from_numpy(held_out[0].frames[:16].copy())
    with torch.inference_mode():
        decoded = to_uint8(world.codec.decode(world.codec.encode(to_unit(frames)[None]))[0][0])
    error = (decoded.float() - frames.float()).square().mean(dim=(1, 2, 3))
    assert float((10 * (65025 / error).log10()).mean()) > 24


def test_a_window_shifted_by_one_action_row_raises_the_loss(world, held_out):
    settings = world.config.curriculum.autoregressive
    stage = AutoregressiveStage(world, LatentStore(held_out, world.codec, world.config), settings).eval()
    right = shifted = 0.0
    with torch.inference_mode():
        for step in range(6):
            batch = stage.batch(step_generator(5, step))
            right += float(stage(batch)[0])
            shifted += float(stage(batch | {"actions": batch["actions"].roll(1, dims=1)})[0])
    assert shifted > 1.005 * right


def test_turning_moves_the_picture_and_standing_keeps_it(world, held_out):
    start = held_out[0].frames[:1]
    frames = []
    for yaw in (0.0, 15.0):
        stream = world.stream(1)
        stream.reset([0], [start], [held_out[0].captions[0][1]], [0])
        frames.append(stream.step(torch.tensor([[[0.0, yaw, 0, 0, 1, 0]]]))[0, 0].numpy().astype(int))
    still, turned = (np.abs(frame - start[0].astype(int)).mean() for frame in frames)
    assert turned > still


def test_it_goes_on_for_a_hundred_steps(world):
    stream = world.stream(1)
    stream.reset(
        [0], [None], [StructuredCaption("a room with plain red walls, a plain blue floor and a grey ceiling")], [1]
    )
    for _ in range(100):
        frame = stream.step(torch.tensor([[[0.0, 5.0, 1, 0, 1, 0]]]))
    assert frame.float().std() > 3
