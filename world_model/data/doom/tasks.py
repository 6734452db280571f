"""Tasks with true rewards, read from the game's own state.

A task's reward belongs to the step (o_{t-1}, a_t, o_t) that earned it. Play may go on after a task has ended:
its reward is then 0 and only the step that ended it carries the flag.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from world_model.data.doom import task_names
from world_model.data.doom.actors import EXIT, HEALTH_PACK
from world_model.data.doom.levels import Placed
from world_model.data.doom.motion import X, Y
from world_model.data.doom.scene import Scene

TOUCH = 64.0  # map units from an object's centre; the boxes of body and object keep the centres 36 to 51 apart
ENTER = 44.0  # map units from the centre of a marker that can be walked through
REACH_BONUS = 1.0
PACK_BONUS = 1.0


def distance(pose: Sequence[float], placed: Placed) -> float:
    """From the player to an object's centre on the floor, in map units."""
    return math.hypot(pose[X] - placed.x, pose[Y] - placed.y)


@dataclass(frozen=True)
class WalkTo:
    """Reward 1 and the end on coming within ``within`` units of an object of that name."""

    name: str
    target: str
    within: float

    def targets(self, scene: Scene) -> list[Placed]:
        """The objects that fulfil the task now."""
        return [placed for placed in scene.objects if placed.kind.name == self.target]

    def judge(self, scene: Scene, pose: Sequence[float], packs_taken: int) -> tuple[float, bool]:
        """Reward and end of the step that led to this pose."""
        for placed in scene.objects:
            if placed.kind.name == self.target and distance(pose, placed) <= self.within:
                return REACH_BONUS, True
        return 0.0, False


@dataclass(frozen=True)
class CollectHealth:
    """Reward 1 per health pack picked up; the end when none is left, picked up or vanished."""

    name: str = task_names.COLLECT_PACKS
    target: str = HEALTH_PACK

    def targets(self, scene: Scene) -> list[Placed]:
        """The packs that are still there."""
        return [placed for placed in scene.objects if placed.kind.name == self.target]

    def judge(self, scene: Scene, pose: Sequence[float], packs_taken: int) -> tuple[float, bool]:
        """Reward and end of the step in which ``packs_taken`` packs were picked up."""
        return PACK_BONUS * packs_taken, not self.targets(scene)


WALK_TO_GOAL = WalkTo(task_names.WALK_TO_BALL, task_names.NAMED_GOAL, TOUCH)
REACH_EXIT = WalkTo(task_names.REACH_EXIT, EXIT, ENTER)
COLLECT_HEALTH = CollectHealth()
TASKS = (WALK_TO_GOAL, COLLECT_HEALTH, REACH_EXIT)
EXPLORE = "explore"  # the task of whoever goes nowhere in particular; it has no true reward
