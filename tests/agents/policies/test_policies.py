"""Policies by name: what they do, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from agents.policies import NAMES, load_policy
from agents.policies.simple import MENU

EVERY = [name.replace("SHARE", "0.3") for name in NAMES]


def first(policy, *frames) -> list[str]:
    """The choices of the first slot for a sequence of pictures."""
    policy.reset(np.ones(2, dtype=bool))
    return [MENU[policy.act(np.stack([frame, frame]))[0]] for frame in frames]


@pytest.mark.parametrize("name", EVERY)
def test_every_policy_gives_actions_of_its_space_and_the_same_ones_for_the_same_seed(name, picture):
    frames = np.stack([picture(centre, height) for centre, height in ((10, 8), (32, 20), (32, 0))])
    one, twin = (load_policy(name, num_envs=3, seed=7) for _ in range(2))
    assert one.action_mode == "discrete"
    for policy in (one, twin):
        policy.reset(np.ones(3, dtype=bool))
    for _ in range(20):
        actions = one.act(frames)
        assert actions.shape == (3,) and actions.dtype == np.int64 and ((actions >= 0) & (actions < 13)).all()
        assert np.array_equal(actions, twin.act(frames))


@pytest.mark.parametrize("name", ["random", "broken:noisy"])
def test_slots_draw_from_generators_of_their_own(name, picture):
    def play(slots, seed=7):
        policy = load_policy(name, num_envs=slots, seed=seed)
        policy.reset(np.ones(slots, dtype=bool))
        return np.stack([policy.act(np.stack([picture(height=0)] * slots)) for _ in range(40)])

    assert np.array_equal(play(2), play(5)[:, :2])
    assert not np.array_equal(play(2)[:, 0], play(2)[:, 1])
    assert not np.array_equal(play(2), play(2, seed=8))


def test_random_takes_every_choice_of_the_menu(picture):
    policy = load_policy("random", num_envs=2, seed=0)
    frames = np.stack([picture()] * 2)
    assert {choice for _ in range(200) for choice in policy.act(frames).tolist()} == set(range(13))


def test_the_scripted_policy_turns_to_the_ball_and_walks_to_it(picture):
    policy = load_policy("scripted", num_envs=2, seed=0)
    assert first(policy, picture(5, 10), picture(22, 10), picture(33, 12), picture(42, 10), picture(60, 10)) == [
        "turn left",
        "forward and turn left",
        "forward",
        "forward and turn right",
        "turn right",
    ]


def test_it_searches_on_the_side_where_the_ball_was(picture):
    policy = load_policy("scripted", num_envs=2, seed=0)
    assert first(policy, picture(22, 10), picture(height=0)) == ["forward and turn left", "turn left"]
    assert first(policy, picture(42, 10), picture(height=0)) == ["forward and turn right", "turn right"]


def test_it_walks_on_when_a_close_ball_leaves_the_picture(picture):
    policy = load_policy("scripted", num_envs=2, seed=0)
    assert first(policy, picture(32, 40), *[picture(height=0)] * 3)[1:] == ["forward", "forward", "turn right"]


def test_it_looks_from_elsewhere_after_a_full_turn(picture):
    chosen = first(load_policy("scripted", num_envs=2, seed=0), *[picture(height=0)] * 48)
    assert chosen[:18] == ["turn right"] * 18 and chosen[18:24] == ["forward"] * 6 and chosen[24] == "turn right"


def test_a_new_episode_forgets_the_old_one_in_its_slot_alone(picture):
    policy = load_policy("scripted", num_envs=2, seed=0)
    policy.reset(np.ones(2, dtype=bool))
    policy.act(np.stack([picture(22, 10)] * 2))
    policy.reset(np.array([True, False]))
    assert [MENU[action] for action in policy.act(np.stack([picture(height=0)] * 2))] == ["turn right", "turn left"]


def test_broken_policies_are_wrong_in_the_way_that_they_say(picture):
    frames = picture(5, 10), picture(22, 10), picture(33, 12)
    right = first(load_policy("scripted", num_envs=2, seed=0), *frames)
    mirrored = first(load_policy("broken:mirrored", num_envs=2, seed=0), *frames)
    assert mirrored == ["turn right", "forward and turn right", "forward"] and right[0] == "turn left"
    assert first(load_policy("broken:backwards", num_envs=2, seed=0), *frames) == ["turn left", "back", "back"]
    assert first(load_policy("broken:spin", num_envs=2, seed=0), *frames) == ["turn left"] * 3
    assert first(load_policy("broken:noisy:0", num_envs=2, seed=0), *frames) == right
    noisy = first(load_policy("broken:noisy:0.5", num_envs=2, seed=0), *[frames[2]] * 200)
    assert 90 < noisy.count("forward") < 130  # 0.5 of 200, and a 13th of the other half
    assert first(load_policy("idle", num_envs=2, seed=0), *frames) == ["idle"] * 3


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((1, 64, 64, 3), np.uint8),
        np.zeros((2, 64, 64), np.uint8),
        np.zeros((2, 4, 64, 64, 3), np.uint8),
        np.zeros((2, 64, 64, 3), np.float32),
        [[1]],
    ],
)
def test_other_observations_are_refused(name, wrong):
    with pytest.raises(ValueError, match=r"it takes uint8 \[2, height, width, 3\], a picture per slot"):
        load_policy(name, num_envs=2, seed=0).act(wrong)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("randm", "there is no policy 'randm'; name one of random, idle, scripted, broken:mirrored"),
        ("", "holds no policy.json"),
        ("broken:", "there is no broken policy ''; choose one of mirrored"),
        ("broken:clock", "there is no broken policy 'clock'"),
        ("broken:noisy:much", "the share of random actions is 'much'; give a number from 0 to 1"),
        ("broken:noisy:1.5", "'1.5'; give a number from 0 to 1"),
        ("broken:noisy:nan", "'nan'; give a number from 0 to 1"),
    ],
)
def test_unknown_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        load_policy(name, num_envs=2, seed=0)
