"""Policies that see places again, so that a recording asks for memory: ways back, turns on the spot, rounds."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from world_model.controls import LONGITUDINAL, FrameAction
from world_model.data.doom.game import DoomGame
from world_model.data.doom.levels import centre
from world_model.data.doom.motion import TURN_UNIT, TURNING_TICS, X, Y, inverse
from world_model.data.doom.navigation import Cell, cell_of, shortest_path
from world_model.data.doom.policies import LEVEL_GAZE, WAYPOINT_REACHED, SafeWalker, Walker

CIRCLE_ERROR = 0.1  # degrees by which quantised turns may miss a whole circle


def circle_rates(lengths: range, error: float) -> list[tuple[int, float]]:
    """(frames, degrees per frame) of the circles that quantised turns close to within ``error`` degrees."""
    unit = TURNING_TICS * TURN_UNIT
    steps = [(frames, round(360 / frames / unit) * unit) for frames in lengths]
    return [(frames, step) for frames, step in steps if abs(frames * step - 360) <= error]


CIRCLE_RATES = circle_rates(range(24, 61), CIRCLE_ERROR)  # 15 to 6 degrees per frame


class ThereAndBack:
    """Walks a collision-free path and then undoes it row by row, so that every frame of the way out is seen
    again from the same pose (within 0.1 units) on the way back; then starts over with what is left."""

    def __init__(self, rng: np.random.Generator, frames: int):
        """``frames`` counts the rows to play, the idle first one not included."""
        self.rng, self.left, self.walker = rng, frames, SafeWalker(rng)
        self.out: list[np.ndarray] = []
        self.still_to_go = self._leg()

    def _leg(self) -> int:
        """Rows of the next way out: at least two thirds of what still allows the return."""
        longest = self.left // 2
        return int(self.rng.integers(max(1, 2 * longest // 3), longest + 1)) if longest else 0

    def __call__(self, game: DoomGame) -> np.ndarray:
        self.left -= 1
        if self.still_to_go:
            self.still_to_go -= 1
            self.out.append(self.walker(game))
            return self.out[-1]
        row = inverse(self.out.pop()) if self.out else FrameAction().row()
        if not self.out:
            self.still_to_go, self.walker.left = self._leg(), 0
        return row


class Mirror(ThereAndBack):
    """One way out and its exact inverse: of ``1 + 2n`` frames, frame ``n + k`` looks from where frame ``n - k`` looked.
    What it shows is the same but for what moves: doors, a figure's legs, health packs that were picked up. An even
    number of frames ends with an idle one."""

    def _leg(self) -> int:
        return self.left // 2


class Spinner:
    """Turns on the spot through whole circles at a constant rate, walks a few collision-free steps, turns again.

    Every circle after the first of a turn sees what the first one saw, at most `CIRCLE_ERROR` degrees off per circle.
    """

    CIRCLES, WALK, PAUSE = (2, 4), (4, 16), (2, 9)  # per turn, and rows: from, and up to without
    PAUSES = 0.3  # share of the turns and of the walks that a pause comes before

    def __init__(self, rng: np.random.Generator):
        self.rng, self.walker = rng, SafeWalker(rng)
        self.turning: deque[np.ndarray] = deque()
        self.walking = 0

    def __call__(self, game: DoomGame) -> np.ndarray:
        if not self.turning and not self.walking:
            self._plan()
        if self.turning:
            return self.turning.popleft()
        self.walking -= 1
        return self.walker(game)

    def _plan(self) -> None:
        """The rows of the next turn, pauses included, and how many to walk after it."""
        rng = self.rng
        frames, step = CIRCLE_RATES[int(rng.integers(len(CIRCLE_RATES)))]
        side = 1 if rng.random() < 0.5 else -1
        turn = [FrameAction(yaw=side * step).row()] * (frames * int(rng.integers(*self.CIRCLES)))
        self.turning.extend([*self._pause(), *turn, *self._pause()])
        self.walking, self.walker.left = int(rng.integers(*self.WALK)), 0

    def _pause(self) -> list[np.ndarray]:
        length = int(self.rng.integers(*self.PAUSE)) if self.rng.random() < self.PAUSES else 0
        return [FrameAction().row()] * length


class Rounds(Walker):
    """Walks from where it stands to one to three other places and back, round after round on the same paths; where
    something bars the way it chooses new places."""

    PLACES = (2, 5)  # of a round, the start included: from, and up to without
    NEAREST, FARTHEST = 3, 8  # cells of 64 units, along the path between two places: a round fits into a clip
    TRIES = 30  # to find a place

    def __init__(self, rng: np.random.Generator):
        super().__init__(rng)
        self.places: deque[Cell] = deque()

    def __call__(self, game: DoomGame) -> np.ndarray:
        if not self.places:
            self.places.extend(self._choose_places(game))
        if self.is_stuck(game):
            self.way, self.blocked_frames = [], 0
            self.places.clear()  # something bars the way, such as a figure; go round elsewhere
            return self.sidestep()
        if self._has_arrived(game) and not self._head_for_next(game):
            return FrameAction(yaw=10.0).row()
        row = self.follow(game, self.gaze(game, LEVEL_GAZE), jump=0)
        if not row[LONGITUDINAL]:
            self.blocked_frames = 0  # it is turning round, not stuck
        return row

    def _choose_places(self, game: DoomGame) -> list[Cell]:
        """The places of a round in turn, the start last; each can be reached from the one before and from the start."""
        start = cell_of(game.pose[X], game.pose[Y])
        places, wanted = [start], int(self.rng.integers(*self.PLACES))
        cells = game.level.free_cells()
        near = cells[np.abs(cells - np.array(start)).max(axis=1) <= self.FARTHEST]
        for _ in range(self.TRIES):
            column, row = near[int(self.rng.integers(len(near)))]
            place = (int(column), int(row))
            if len(places) < wanted and all(self._is_within_reach(game, end, place) for end in places):
                places.append(place)
        return [*places[1:], start]

    def _is_within_reach(self, game: DoomGame, place: Cell, other: Cell) -> bool:
        way = shortest_path(game.level, place, other)
        return way is not None and self.NEAREST < len(way) <= self.FARTHEST

    def _has_arrived(self, game: DoomGame) -> bool:
        if len(self.way) > 1:
            return False
        return not self.way or math.dist(centre(*self.way[0]), game.pose[:2].tolist()) < WAYPOINT_REACHED

    def _head_for_next(self, game: DoomGame) -> bool:
        """Plan the way to the next place that one is not at already; False if there is no way to any."""
        for _ in range(len(self.places)):
            self.places.rotate(-1)
            if self.plan(game, self.places[-1]):
                return True
        return False
