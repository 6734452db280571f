"""Worlds that lack what makes a world: each lacks just that."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from agents.crippled_worlds import ShuffledActions, StillWorld, untrained
from agents.places import make_env
from world_model.checkpoint import load_world


@pytest.fixture(scope="module")
def world(folder):
    return load_world(folder)


def make(world, slots=2, **options):
    return make_env("world", slots, task="constant", world=world, autoreset_mode=AutoresetMode.DISABLED, **options)


def test_the_picture_stays_and_so_does_what_the_heads_read(world):
    env = make(StillWorld(world))
    first, _ = env.reset(seed=0, options={"start_index": [0, 1]})
    there, _ = make(world).reset(seed=0, options={"start_index": [0, 1]})
    assert (first == there).all() and (first[0] != first[1]).any()
    latents = env.episodes.stream.latents.clone()
    for action in (0, 5):
        frames = env.step(np.full(2, action))[0]
        assert (frames == first).all() and torch.equal(env.episodes.stream.latents, latents)
    mask = np.array([False, True])
    again, _ = env.reset(seed=[None, 3], options={"reset_mask": mask, "start_index": [0, 0]})
    assert (again[0] == again[1]).all() and (again[0] == first[0]).all()
    assert (env.step(np.zeros(2, dtype=np.int64))[0] == again).all()


def test_a_still_world_brings_the_starts_and_the_folder_of_the_whole_one(world):
    env = make(StillWorld(world))
    assert len(env.episodes.bank) == 2 and env.episodes.handle.folder == world.path


def test_an_untrained_world_keeps_its_codec_and_loses_the_rest(folder):
    world = load_world(folder)
    with torch.no_grad():
        for parameter in world.parameters():
            parameter.add_(1)  # what training does
    other = untrained(world, seed=1)
    assert other.path == world.path and other.config == world.config

    def same(part):
        mine, its = getattr(world, part).parameters(), getattr(other, part).parameters()
        return [torch.equal(*pair) for pair in zip(mine, its, strict=True)]

    assert all(same("codec")) and all(same("text")) and not any(same("transformer") + same("compressor"))
    assert not any(parameter.requires_grad for parameter in other.parameters())
    halved = untrained(load_world(folder, dtype="bfloat16"))
    assert {parameter.dtype for parameter in halved.transformer.parameters()} == {torch.bfloat16}
    env = make(other)
    env.reset(seed=0)
    env.step(np.zeros(2, dtype=np.int64))


class Listener:
    """The menu's choices that reach an environment."""

    def __init__(self, env):
        self.heard, self.step = [], env.step
        env.step = self

    def __call__(self, actions):
        self.heard.append(np.array(actions))
        return self.step(actions)


def shuffled(corridor, slots=4):
    env = corridor(slots)
    listener = Listener(env)
    return ShuffledActions(env), listener


def walk(env, seed, action, steps=5, slots=4):
    env.reset(seed=[seed + slot for slot in range(slots)], options={"start_index": [4] * slots})
    for _ in range(steps):
        env.step(np.full(slots, action))


def test_shuffled_actions_have_no_meaning_and_are_the_same_for_the_same_seed(corridor):
    env, listener = shuffled(corridor)
    walk(env, 0, 3)
    walk(env, 0, 3)
    walk(env, 50, 3)
    heard = np.array(listener.heard).reshape(3, 5, 4)
    assert (heard[0] == heard[1]).all() and (heard[0] != heard[2]).any()
    assert len(np.unique(heard)) > 6, "the same choice becomes every other one"
    assert heard.min() >= 0 and heard.max() < 13


def test_different_choices_stay_different(corridor):
    env, listener = shuffled(corridor)
    walk(env, 0, 3)
    walk(env, 0, 4)
    first, second = np.array(listener.heard).reshape(2, 5, 4)
    assert (first != second).all()


def test_every_choice_becomes_every_other_one_as_often(corridor):
    env, listener = shuffled(corridor, 1)
    for seed in range(200):
        walk(env, seed, 7, slots=1)
    share = np.bincount(np.concatenate(listener.heard), minlength=13) / len(listener.heard)
    assert np.abs(share - 1 / 13).max() < 0.03


def test_a_slot_without_a_seed_goes_on(corridor):
    env, listener = shuffled(corridor, 2)
    walk(env, 0, 3, steps=2, slots=2)
    env.reset(seed=[0, None], options={"start_index": [4, 4], "reset_mask": np.array([True, False])})
    env.step(np.full(2, 3))
    first, _, third = listener.heard
    assert third[0] == first[0]


def test_only_choices_of_a_menu_can_be_shuffled(world):
    with pytest.raises(ValueError, match="cannot be shuffled; make it 'discrete'"):
        ShuffledActions(make(world, action_mode="box"))
