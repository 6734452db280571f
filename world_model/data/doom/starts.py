"""How an episode can begin: who, where and looking which way."""

from __future__ import annotations

import math

import numpy as np

from world_model.data.doom.actors import ARMOUR, CHARACTERS, EXIT, HEALTH_PACK, WEAPONS
from world_model.data.doom.engine import Look, Start
from world_model.data.doom.levels import Level, Placed, centre
from world_model.data.doom.navigation import fits, sees
from world_model.data.doom.task_names import NAMED_GOAL
from world_model.data.doom.tasks import distance

ARMED = 0.75  # share of figures that hold a weapon
VIEW_AHEAD, VIEW_BEHIND = 200.0, 120.0  # map units free at the start (behind: for the camera in third person)
AWAY_FROM_GOALS = 120.0  # map units; no task is fulfilled at the start
START_TRIES = 60
NEAR_GOAL, FAR_GOAL = 110.0, 420.0  # map units between a start that faces a goal and it: 2 to 20 frames' walk
OFF_GOAL = 30.0  # degrees that the goal may stand off the middle of the picture, which shows 42 to either side
GOAL_ROOM = 48.0  # map units in front of a goal that its own cell, which is solid, may take of the free line


def choose_look(rng: np.random.Generator) -> Look:
    """A random character with armour and weapon."""
    character = CHARACTERS[int(rng.integers(len(CHARACTERS)))].name
    armour = tuple(ARMOUR)[int(rng.integers(len(ARMOUR)))] if character == "Marine" else "green"
    weapon = tuple(WEAPONS)[int(rng.integers(len(WEAPONS)))]
    return Look(character, armour, weapon if rng.random() < ARMED else "")


def choose_start(level: Level, rng: np.random.Generator) -> Start:
    """A random start with a free view, away from everything that ends a task."""
    cells, seed = level.free_cells(), int(rng.integers(2**31))
    goals = [placed for name in (NAMED_GOAL, EXIT, HEALTH_PACK) for placed in level.named(name)]
    for _ in range(START_TRIES):
        x, y = centre(*(int(v) for v in cells[int(rng.integers(len(cells)))]))
        heading = float(rng.uniform(0, 360))
        if (
            all(distance((x, y), goal) > AWAY_FROM_GOALS for goal in goals)
            and fits(level, x, y)
            and sees(level, x, y, heading, VIEW_AHEAD)
            and sees(level, x, y, heading + 180, VIEW_BEHIND)
        ):
            break
    return Start(x, y, heading, seed)


def choose_start_facing(level: Level, name: str, rng: np.random.Generator) -> Start | None:
    """A random start from which an object of that name is seen and can be walked to in a straight line.

    None when the level offers none, or chance did not find it.
    """
    goals: list[Placed] = level.named(name)
    if not goals:
        return None
    cells, seed = level.free_cells(), int(rng.integers(2**31))
    for _ in range(START_TRIES):
        goal = goals[int(rng.integers(len(goals)))]
        x, y = centre(*(int(v) for v in cells[int(rng.integers(len(cells)))]))
        away, bearing = distance((x, y), goal), math.degrees(math.atan2(goal.y - y, goal.x - x))
        if NEAR_GOAL < away < FAR_GOAL and fits(level, x, y) and sees(level, x, y, bearing, away - GOAL_ROOM):
            return Start(x, y, (bearing + float(rng.uniform(-OFF_GOAL, OFF_GOAL))) % 360, seed)
    return None
