"""Who holds the controls while a clip is recorded.

A policy is called with the game before every frame and returns an action row ``[6]``; its perspective column
is overwritten by the recorder, which decides the view.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from world_model.controls import FrameAction
from world_model.data.doom.game import DoomGame
from world_model.data.doom.levels import Placed, centre
from world_model.data.doom.motion import ELEVATION, X, Y, degrees_between, path
from world_model.data.doom.navigation import cell_of, fits, shortest_path
from world_model.data.doom.tasks import CollectHealth, WalkTo, distance

MAX_TURN = 16.0  # degrees per frame
MAX_LOOK = 4.0
ON_COURSE = 50.0  # degrees off the path up to which one walks while turning
WAYPOINT_REACHED = 40.0  # map units
PERSONAL_SPACE = 56.0  # map units kept in front of walls while strafing or backing
LEVEL_GAZE, GAZE_SPREAD = 0.0, 8.0  # degrees of camera elevation


class Walked(Protocol):
    """What a policy without a map needs of a game."""

    @property
    def pose(self) -> np.ndarray: ...

    def distances(self) -> tuple[float, float, float]: ...


class Policy(Protocol):
    """Chooses the next action row."""

    def __call__(self, game: DoomGame) -> np.ndarray: ...


def _clip(value: float, limit: float) -> float:
    return float(min(max(value, -limit), limit))


class Walker:
    """Follows A* paths with a limited turn rate; what the explorer and the task policy share."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.way: list[tuple[int, int]] = []
        self.last_place, self.blocked_frames = [math.inf, math.inf], 0

    def plan(self, game: DoomGame, goal: tuple[int, int]) -> bool:
        """Plan a path to a cell; False if there is none."""
        here = cell_of(game.pose[X], game.pose[Y])
        self.way = (shortest_path(game.level, here, goal) or [])[1:]
        return bool(self.way)

    def is_stuck(self, game: DoomGame) -> bool:
        """Whether the last few frames of following led nowhere."""
        place = game.pose[:2].tolist()
        moved = math.dist(place, self.last_place)
        self.last_place = place
        self.blocked_frames = self.blocked_frames + 1 if moved < 2 else 0
        return self.blocked_frames > 4

    def follow(self, game: DoomGame, pitch: float, jump: int) -> np.ndarray:
        """One row along the planned path."""
        place = game.pose[:2].tolist()
        while len(self.way) > 1 and math.dist(centre(*self.way[0]), place) < WAYPOINT_REACHED:
            self.way.pop(0)
        return self.approach(game, *centre(*self.way[0]), pitch, jump)

    def approach(self, game: DoomGame, x: float, y: float, pitch: float, jump: int = 0) -> np.ndarray:
        """One row towards a point in map units."""
        own_x, own_y, _, heading, _ = game.pose.tolist()
        right = degrees_between(heading - math.degrees(math.atan2(y - own_y, x - own_x)))
        turn = _clip(0.5 * right + self.rng.normal(0, 1.2), MAX_TURN)
        return FrameAction(pitch=pitch, yaw=turn, longitudinal=int(abs(right) < ON_COURSE), jump=jump).row()

    def gaze(self, game: DoomGame, wanted: float) -> float:
        """The pitch that brings the camera towards an elevation."""
        return _clip(wanted - float(game.pose[ELEVATION]), MAX_LOOK)

    def sidestep(self) -> np.ndarray:
        """A row that gets a stuck body off what holds it."""
        side = 1 if self.rng.random() < 0.5 else -1
        return FrameAction(yaw=side * MAX_TURN, longitudinal=-1, lateral=side).row()


class Explorer(Walker):
    """Walks to random places; in between looks around, strafes, steps back, stands and jumps."""

    HABITS = ("walk", "walk", "walk", "walk", "walk", "look", "strafe", "stand", "back")

    def __init__(self, rng: np.random.Generator):
        super().__init__(rng)
        self.habit, self.left = "walk", int(rng.integers(8, 30))
        self.turn, self.elevation, self.side, self.advance = 0.0, 0.0, 1, 0

    def __call__(self, game: DoomGame) -> np.ndarray:
        if self.left <= 0:
            self._change_habit()
        self.left -= 1
        jump, pitch = int(self.rng.random() < 0.03), self.gaze(game, self.elevation)
        if self.habit != "walk":
            row = self._interlude(pitch, jump)
            if self._has_room(game, row):
                return row
            self.habit, self.left = "walk", int(self.rng.integers(8, 24))
        if self.is_stuck(game):
            self.way, self.blocked_frames = [], 0
            return self.sidestep()
        if len(self.way) <= 1 and not self._choose_goal(game):
            return FrameAction(yaw=10.0).row()
        return self.follow(game, pitch, jump)

    def _change_habit(self) -> None:
        rng = self.rng
        self.habit = self.HABITS[int(rng.integers(len(self.HABITS)))]
        self.left = int(rng.integers(12, 36)) if self.habit == "walk" else int(rng.integers(4, 12))
        self.turn = _clip(rng.normal(0, 9), MAX_TURN)
        self.elevation = LEVEL_GAZE if rng.random() < 0.5 else _clip(rng.normal(0, GAZE_SPREAD), 20)
        self.side = 1 if rng.random() < 0.5 else -1
        self.advance = int(rng.random() < 0.35)

    def _interlude(self, pitch: float, jump: int) -> np.ndarray:
        if self.habit == "look":
            return FrameAction(pitch=pitch, yaw=self.turn, jump=jump).row()
        if self.habit == "strafe":
            return FrameAction(pitch, self.turn / 3, self.advance, self.side, jump=jump).row()
        if self.habit == "back":
            return FrameAction(pitch=pitch, yaw=self.turn / 3, longitudinal=-1).row()
        return FrameAction(jump=int(self.rng.random() < 0.1)).row()

    def _has_room(self, game: DoomGame, row: np.ndarray) -> bool:
        return fits(game.level, *path(game.pose, row)[-1], margin=PERSONAL_SPACE - 16)

    def _choose_goal(self, game: DoomGame) -> bool:
        cells = game.level.free_cells()
        here = np.array(cell_of(game.pose[X], game.pose[Y]))
        far = cells[np.abs(cells - here).max(axis=1) >= 4]
        goals = far if len(far) else cells  # from the middle of a small room nothing is far
        for _ in range(6):
            goal = goals[int(self.rng.integers(len(goals)))]
            if self.plan(game, (int(goal[0]), int(goal[1]))):
                return True
        return False


class TaskWalker(Walker):
    """Carries out a task, then explores."""

    def __init__(self, rng: np.random.Generator, task: WalkTo | CollectHealth):
        super().__init__(rng)
        self.task = task
        self.afterwards = Explorer(rng)
        self.goal: Placed | None = None

    def __call__(self, game: DoomGame) -> np.ndarray:
        done = self.task.name not in game.open_tasks
        targets = [] if done else sorted(self.task.targets(game.scene), key=lambda t: distance(game.pose, t))
        if not targets or self.is_stuck(game):
            return self.afterwards(game)
        if self.goal not in targets:
            self.goal = targets[0]
            self.plan(game, self._doorstep(game, self.goal))
        pitch = self.gaze(game, LEVEL_GAZE)
        if len(self.way) > 1 and distance(game.pose, self.goal) > 160:
            return self.follow(game, pitch, jump=int(self.rng.random() < 0.02))
        return self.approach(game, self.goal.x, self.goal.y, pitch)

    @staticmethod
    def _doorstep(game: DoomGame, goal: Placed) -> tuple[int, int]:
        """The goal's cell, or the walkable one nearest to it if the goal is solid."""
        cells = game.level.free_cells()
        offsets = cells - np.array(cell_of(goal.x, goal.y))
        return tuple(int(v) for v in cells[np.hypot(*offsets.T).argmin()])


class DepthWalker:
    """Turns towards where there is more room. It sees three distances and needs neither pose nor map, so it can
    walk Freedoom's own levels."""

    NEAR, WALL = 170.0, 56.0  # map units

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.swing, self.elevation, self.left = 0.0, 0.0, 0
        self.side = 0  # towards which it is turning away from something near

    def __call__(self, game: Walked) -> np.ndarray:
        left, ahead, right = game.distances()
        nearness = max(0.0, 1 - ahead / self.NEAR)
        if nearness == 0:
            self.side = 0
        elif self.side == 0:
            self.side = 1 if right >= left else -1
        self.swing = 0.85 * self.swing + self.rng.normal(0, 2.2)
        self.left -= 1
        if self.left < 0:
            self.left, self.elevation = int(self.rng.integers(10, 40)), float(self.rng.normal(0, 5))
        return FrameAction(
            pitch=_clip(self.elevation - float(game.pose[ELEVATION]), 3),
            yaw=_clip(self.swing * (self.side == 0) + 1.5 * MAX_TURN * nearness * self.side, MAX_TURN),
            longitudinal=int(ahead > self.WALL),
            lateral=int(self.rng.random() < 0.06) - int(self.rng.random() < 0.06),
            jump=int(self.rng.random() < 0.02),
        ).row()


class SafeWalker:
    """Collision-free by construction: a row whose exact path comes near anything solid is never played."""

    MOVES = ("ahead", "ahead", "ahead", "arc", "arc", "strafe", "look", "back", "slant")
    TRIES = 40

    def __init__(self, rng: np.random.Generator):
        self.rng, self.left, self.row = rng, 0, FrameAction().row()

    def __call__(self, game: DoomGame) -> np.ndarray:
        for _ in range(self.TRIES):
            if self.left <= 0:
                self._change_move()
            elevation = float(game.pose[ELEVATION]) + float(self.row[0])
            if abs(elevation) < 20 and all(fits(game.level, x, y) for x, y in path(game.pose, self.row)):
                self.left -= 1
                return self.row
            self.left = 0
        return FrameAction(yaw=12.0).row()

    def _change_move(self) -> None:
        rng = self.rng
        move, side = self.MOVES[int(rng.integers(len(self.MOVES)))], 1 if rng.random() < 0.5 else -1
        self.left = int(rng.integers(4, 14))
        self.row = FrameAction(
            pitch=_clip(rng.normal(0, 1.5), MAX_LOOK) if move == "look" else 0.0,
            yaw=side * float(rng.uniform(4, MAX_TURN)) if move in ("arc", "look") else 0.0,
            longitudinal={"strafe": 0, "look": 0, "back": -1}.get(move, 1),
            lateral=side if move in ("strafe", "slant") else 0,
        ).row()
