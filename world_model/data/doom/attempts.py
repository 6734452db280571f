"""Attempts that fail: what a reward that is learned from success alone would take for it."""

from __future__ import annotations

import numpy as np

from world_model.controls import FrameAction
from world_model.data.doom.game import DoomGame
from world_model.data.doom.policies import LEVEL_GAZE, MAX_TURN, TaskWalker
from world_model.data.doom.tasks import CollectHealth, WalkTo, distance

NEAREST, FARTHEST = 76.0, 180.0  # map units from the goal at which an attempt ends; tasks are fulfilled from 64 on
LONGEST_PAUSE = 12  # frames


class FailedAttempt(TaskWalker):
    """Sets out for a task's goal and gives up before it is there: it stops in front of it, backs off, passes by or
    turns away, and explores from then on."""

    WAYS = ("stop", "back", "pass", "turn")

    def __init__(self, rng: np.random.Generator, task: WalkTo | CollectHealth):
        super().__init__(rng, task)
        self.nearest = float(rng.uniform(NEAREST, FARTHEST))
        self.way_out, self.side = self.WAYS[int(rng.integers(len(self.WAYS)))], 1 if rng.random() < 0.5 else -1
        self.left = int(rng.integers(2, LONGEST_PAUSE))  # frames of it, once it has begun
        self.gave_up = False

    def __call__(self, game: DoomGame) -> np.ndarray:
        near = [target for target in self.task.targets(game.scene) if distance(game.pose, target) <= self.nearest]
        self.gave_up = self.gave_up or bool(near)
        if not self.gave_up:
            return super().__call__(game)
        if self.left <= 0:
            return self.afterwards(game)
        self.left -= 1
        return self._turned_away(self.gaze(game, LEVEL_GAZE))

    def _turned_away(self, pitch: float) -> np.ndarray:
        if self.way_out == "back":
            return FrameAction(pitch=pitch, longitudinal=-1).row()
        if self.way_out == "pass":
            return FrameAction(pitch=pitch, yaw=-self.side * MAX_TURN / 4, lateral=self.side).row()
        if self.way_out == "turn":
            return FrameAction(pitch=pitch, yaw=self.side * MAX_TURN).row()
        return FrameAction(pitch=pitch).row()
