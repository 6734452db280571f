"""Attempts that fail, and the recordings that are made of attempts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from world_model.data.doom.attempts import NEAREST, FailedAttempt
from world_model.data.doom.engine import Look
from world_model.data.doom.game import DoomGame
from world_model.data.doom.levels import random_level
from world_model.data.doom.policies import TaskWalker
from world_model.data.doom.recipe import Recipe
from world_model.data.doom.starts import choose_start_facing
from world_model.data.doom.take import Take
from world_model.data.doom.tasks import WALK_TO_GOAL, distance

SEED = next(seed for seed in range(50) if random_level(seed).named(WALK_TO_GOAL.target))


@pytest.fixture(scope="module")
def game():
    game = DoomGame([random_level(SEED)], size=64)
    yield game
    game.close()


def nearest_approach(game: DoomGame, kind: type, seed: int) -> tuple[float, float]:
    """The smallest distance to the goal, and the reward, of 30 frames of a policy."""
    start = choose_start_facing(game.levels[0], WALK_TO_GOAL.target, np.random.default_rng(seed))
    game.reset(0, start, Look())
    policy, steps = kind(np.random.default_rng(seed), WALK_TO_GOAL), []
    if kind is FailedAttempt:
        policy.left = 30  # nothing of what it does later
    for _ in range(30):
        steps.append(game.step(policy(game)))
    away = [min(distance(step.pose, goal) for goal in game.levels[0].named(WALK_TO_GOAL.target)) for step in steps]
    return min(away), sum(step.rewards[WALK_TO_GOAL.name] for step in steps)


def test_a_failed_attempt_comes_near_and_is_not_rewarded_where_the_walker_is(game):
    walked, failed = ([nearest_approach(game, kind, seed) for seed in range(6)] for kind in (TaskWalker, FailedAttempt))
    assert sum(reward for _, reward in walked) >= 5
    assert sum(reward for _, reward in failed) <= 1  # passing by may touch
    assert np.mean([away for away, _ in failed]) < 3 * NEAREST


def test_clips_of_tasks_begin_before_a_goal_and_are_made_of_attempts(game):
    takes = [Take(game, 0, Recipe(0, "train", 40, 64, "tasks"), index) for index in range(20)]
    assert all(take.task is not None for take in takes)
    for take in takes:
        away = [distance((take.start.x, take.start.y), goal) for goal in game.levels[0].named(take.task.target)]
        assert any(100 < a < 430 for a in away)
        assert getattr(take.policy, "task", take.task) is take.task
    assert {type(take.policy) for take in takes} >= {TaskWalker, FailedAttempt}
    assert np.mean([take.views[0] for take in takes]) > 0.6
