"""Every start is played once and counted whole; what two places share is compared start by start."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from agents.evaluate import Evaluation, evaluate, gaps
from agents.places import make_env
from agents.policies import load_policy
from wp2env.tasks import RewardOut


def play(env, starts, max_steps=100, seed=0, watch=None):
    return evaluate(load_policy("idle", num_envs=env.num_envs, seed=0), env, starts, max_steps, seed, watch)


@given(st.integers(1, 7), st.lists(st.integers(0, 39), min_size=1, max_size=20, unique=True), st.integers(1, 6))
def test_every_start_is_played_once_however_long_its_episode_takes(corridor, slots, starts, limit):
    env = corridor(slots)
    found = play(env, starts, limit, seed=100)
    lengths = np.minimum(np.array(starts) % 5 + 1, limit)
    assert found.starts.tolist() == starts and found.lengths.tolist() == lengths.tolist()
    assert found.returns.tolist() == (lengths * starts).tolist()
    whole = np.array(starts) % 5 < limit
    assert found.successes.tolist() == (whole & (np.array(starts) % 2 == 0)).tolist()
    counted = [(start, seed) for start, seed in env.begun if seed is not None]
    assert sorted(counted) == sorted((start, 100 + episode) for episode, start in enumerate(starts))


@given(st.lists(st.integers(0, 39), min_size=1, max_size=9, unique=True), st.integers(1, 6))
def test_a_shorter_episode_is_the_beginning_of_a_longer_one(corridor, starts, limit):
    shorter, cut = play(corridor(3), starts, limit), play(corridor(3), starts, 6).within(limit)
    assert cut.as_dict() == shorter.as_dict()


def test_the_watcher_sees_every_picture_of_every_episode(corridor):
    seen: dict[int, list] = {}
    play(corridor(3), [4, 1, 7, 2, 9], watch=lambda episode, frame: seen.setdefault(episode, []).append(frame))
    assert {episode: [int(frame[0, 0, 0]) for frame in frames] for episode, frames in seen.items()} == {
        0: [0, 1, 2, 3, 4, 5], 1: [0, 1, 2], 2: [0, 1, 2, 3], 3: [0, 1, 2, 3], 4: [0, 1, 2, 3, 4, 5]
    }  # fmt: skip
    assert {int(frame[1, 1, 0]) for frame in seen[2]} == {7}


def test_the_policy_is_told_where_episodes_begin(corridor):
    class Told:
        action_mode = "discrete"
        masks: list = []

        def reset(self, mask):
            self.masks.append(mask.tolist())

        def act(self, observations):
            return np.zeros(2, dtype=np.int64)

    evaluate(Told(), corridor(2), [0, 1, 3], 10, seed=0)
    assert Told.masks[:3] == [[True, True], [True, False], [False, True]]


def test_means_have_intervals_over_episodes(corridor):
    means = play(corridor(4), range(20)).intervals(seed=1)
    assert means["success"].mean == 0.5 and 0.2 < means["success"].low < 0.5 < means["success"].high < 0.8
    assert means["length"].mean == 3 and means["return"].count == 20
    assert means == play(corridor(7), range(20)).intervals(seed=1)


def test_gaps_are_paired(corridor):
    world = play(corridor(4), range(20))
    game = Evaluation(world.starts, world.lengths, world.returns[:, None] - 2, ~world.successes[:, None])
    found = gaps(world, game)
    assert (found["return"].low, found["return"].mean, found["return"].high) == (2, 2, 2)
    assert found["success"].mean == 0 and found["agreement"].mean == 0
    assert gaps(world, world)["agreement"].mean == 1
    with pytest.raises(ValueError, match="began from different starts"):
        gaps(world, play(corridor(4), range(1, 21)))


def test_wrong_requests_are_refused(corridor):
    with pytest.raises(ValueError, match="make the environment with autoreset_mode=DISABLED"):
        play(corridor(2, mode=AutoresetMode.SAME_STEP), [0])
    with pytest.raises(ValueError, match="there are no starts to play"):
        play(corridor(2), [])
    with pytest.raises(ValueError, match="max_steps is 0; give at least 1"):
        play(corridor(2), [0], max_steps=0)
    policy = load_policy("idle", num_envs=2, seed=0)
    policy.action_mode = "box"
    with pytest.raises(ValueError, match="make it with action_mode='box'"):
        evaluate(policy, corridor(2), [0], 10, seed=0)
    with pytest.raises(ValueError, match="the place is 'moon'; choose one of world, game"):
        make_env("moon", 2, task="explore")


# In a generated world.


def fast_for_the_second(context):
    """Slot by slot, since tasks do not know the start: the pictures of the starts differ in brightness."""
    return RewardOut(context.frames.mean((1, 2, 3, 4)) / 255, context.steps >= 3, {"success": context.steps / 3.0})


def test_a_generated_world_is_evaluated_alike_in_any_number_of_slots(folder):
    def run(slots, task=fast_for_the_second):
        env = make_env("world", slots, task=task, world=str(folder), autoreset_mode=AutoresetMode.DISABLED)
        try:
            return play(env, [1, 0], max_steps=4, seed=5)
        finally:
            env.close()

    one, two = run(1), run(2)
    assert one.lengths.tolist() == two.lengths.tolist() == [3, 3] and one.successes.all()
    assert one.returns == pytest.approx(two.returns, abs=0.02) and one.returns[0] != one.returns[1]
    assert run(2, "explore").successes is None and set(run(2, "explore").measures) == {"return", "length"}
