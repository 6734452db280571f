"""The environment in a large world of random weights, made from its folder like any other."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from world_model.config import to_json
from world_model.large import world
from world_model.large.folder import LargeWorld
from wp2env.vector_env import WorldPlay2VectorEnv

HALL = {"scene": "a hall"}


@pytest.fixture(scope="module")
def large_folder(toy, lively_experts, tmp_path_factory):
    folder, large = tmp_path_factory.mktemp("large"), LargeWorld(toy, "fast")
    for name, expert in lively_experts(large).items():
        save_file(expert.state_dict(), folder / f"{name}-00001.safetensors")
    (folder / "config.json").write_text(to_json(large))
    return folder


@pytest.fixture(autouse=True)
def companions(monkeypatch, blocks):
    """Stand in for Wan's autoencoder and umT5."""
    monkeypatch.setattr(world, "open_codec", lambda place, device: blocks)
    monkeypatch.setattr(world, "open_text", lambda *given: lambda text: torch.full((2, 8), float(len(text))))


def options(**more):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return {"init_frames": pixels, "caption": HALL, **more}


def test_an_episode_begins_with_the_picture_and_goes_on_in_chunks_of_16_frames(large_folder):
    env = gymnasium.make("wp2env:WorldPlay2-v0", world=str(large_folder), obs_mode="clip", max_episode_steps=2)
    picture, info = env.reset(seed=0, options=options())
    assert picture.shape == (16, 64, 64, 3) and np.array_equal(picture[-1], options()["init_frames"])
    assert info["caption"]["scene"] == "a hall"
    action = env.action_space.sample()
    first, _, _, truncated, _ = env.step(action)
    assert not truncated and (first[:4] == first[0]).all() and not np.array_equal(first[4], first[0])
    state = env.unwrapped.get_state()
    second, _, _, truncated, _ = env.step(action)
    assert truncated
    env.unwrapped.set_state(pickle.loads(pickle.dumps(state)))
    assert np.array_equal(env.unwrapped.step(action)[0], second)


def test_slots_are_reset_one_by_one_and_show_what_a_single_environment_shows(large_folder):
    env = WorldPlay2VectorEnv(2, world=str(large_folder), action_mode="discrete", autoreset_mode="DISABLED")
    env.reset(seed=3, options=options())
    alone = gymnasium.make("wp2env:WorldPlay2-v0", world=str(large_folder), action_mode="discrete")
    alone.reset(seed=4, options=options())
    for move in (1, 5):
        frames = env.step(np.array([2, move]))[0]
        assert np.array_equal(frames[1], alone.step(move)[0])
    env.reset(seed=9, options=options(reset_mask=np.array([True, False])))
    frames = env.step(np.array([1, 1]))[0]
    assert np.array_equal(frames[1], alone.step(1)[0])
    assert env.episodes.stream.steps_taken.tolist() == [4, 12]


def test_the_few_step_world_takes_no_other_number_of_steps(large_folder):
    with pytest.raises(ValueError, match="distilled to 4 network evaluations"):
        WorldPlay2VectorEnv(1, world=str(large_folder), sampling_steps=2)
