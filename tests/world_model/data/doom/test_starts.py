"""Starts that face a goal: it is seen from there, and the way is free."""

from __future__ import annotations

import math

import numpy as np
import pytest

from world_model.data.doom.levels import random_level
from world_model.data.doom.starts import FAR_GOAL, NEAR_GOAL, OFF_GOAL, choose_start_facing
from world_model.data.doom.task_names import NAMED_GOAL
from world_model.data.doom.tasks import distance


@pytest.mark.parametrize("seed", range(8))
def test_a_start_faces_its_goal_from_a_walk_away(seed):
    level = random_level(seed)
    start = choose_start_facing(level, NAMED_GOAL, np.random.default_rng(seed))
    goals = level.named(NAMED_GOAL)

    def off(goal):
        return (math.degrees(math.atan2(goal.y - start.y, goal.x - start.x)) - start.heading + 180) % 360 - 180

    seen = [goal for goal in goals if abs(off(goal)) <= OFF_GOAL + 1e-6]
    assert any(NEAR_GOAL < distance((start.x, start.y), goal) < FAR_GOAL for goal in seen)


def test_what_a_level_does_not_have_cannot_be_faced():
    assert choose_start_facing(random_level(0), "unicorn", np.random.default_rng(0)) is None
