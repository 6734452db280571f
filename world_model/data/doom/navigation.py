"""Ways through a level: A* over its cells, and where a body fits."""

from __future__ import annotations

import functools
import heapq

import numpy as np

from world_model.data.doom.actors import BODY_RADIUS
from world_model.data.doom.levels import Level
from world_model.data.doom.maps import CELL

Cell = tuple[int, int]  # column, row
NEIGHBOURS = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
WALL_COST = 3.0  # of a cell beside something solid, against 1 in the open: paths keep their distance
DIAGONAL = 1.414
RAY_STEP = 16.0  # map units
SIDES = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def cell_of(x: float, y: float) -> Cell:
    """The cell that holds a point in map units."""
    return int(x // CELL), int(y // CELL)


@functools.lru_cache(maxsize=8)  # a few clips in a row visit the same level
def _steps(level: Level) -> list[list[tuple[int, float]]]:
    """For every cell, the cells one can step to and what that costs. Cells are numbered row after row; a level's rim
    is rock, so no step leaves the grid, and a diagonal step cuts no corner."""
    rows, columns = level.free.shape
    padded = np.pad(level.free, 1)
    open_around = np.ones_like(level.free)
    for i, j in NEIGHBOURS:
        open_around &= padded[1 + j : 1 + j + rows, 1 + i : 1 + i + columns]
    costs = np.where(open_around, 1.0, WALL_COST).ravel().tolist()
    free = level.free.ravel().tolist()
    steps: list[list[tuple[int, float]]] = [[] for _ in free]
    for cell in np.flatnonzero(level.free).tolist():
        for i, j in NEIGHBOURS:
            across, along = cell + i, cell + j * columns
            following = across + j * columns
            if free[following] and free[across] and free[along]:
                steps[cell].append((following, costs[following] * (DIAGONAL if i and j else 1.0)))
    return steps


def shortest_path(level: Level, start: Cell, goal: Cell) -> list[Cell] | None:
    """A* from start to goal (both included) without cutting corners; None if there is no way."""
    steps, columns = _steps(level), level.grid.columns
    goal_column, goal_row = goal
    came_from: dict[int, int] = {}
    first, last = start[1] * columns + start[0], goal_row * columns + goal_column
    queue = [(0.0, 0.0, first, first)]
    while queue:
        _, so_far, cell, parent = heapq.heappop(queue)
        if cell in came_from:
            continue
        came_from[cell] = parent
        if cell == last:
            found = [cell]
            while found[-1] != first:
                found.append(came_from[found[-1]])
            return [(number % columns, number // columns) for number in reversed(found)]
        for following, cost in steps[cell]:
            if following not in came_from:
                far, near = abs(following % columns - goal_column), abs(following // columns - goal_row)
                far, near = (far, near) if far > near else (near, far)
                reached = so_far + cost
                heapq.heappush(queue, (reached + far + (DIAGONAL - 1) * near, reached, following, cell))
    return None


def fits(level: Level, x: float, y: float, margin: float = 10.0) -> bool:
    """Whether a body at a point (map units) stays ``margin`` away from rock, doors and solid objects."""
    reach = BODY_RADIUS + margin
    for i, j in SIDES:
        column, row = cell_of(x + i * reach, y + j * reach)
        if not (0 <= row < level.grid.rows and 0 <= column < level.grid.columns) or level.closed[row, column]:
            return False
    return all(
        max(abs(placed.x - x), abs(placed.y - y)) > placed.kind.radius + reach
        for placed in level.objects
        if placed.kind.radius
    )


def ray_lengths(level: Level, x: float, y: float, headings: np.ndarray, limit: float) -> np.ndarray:
    """How far one can see from a point along headings (degrees) before rock or a solid object, at most ``limit``
    map units, to `RAY_STEP` units; float, one per heading."""
    steps = np.arange(RAY_STEP, limit + RAY_STEP, RAY_STEP)
    directions = np.radians(headings)[:, None]
    columns = ((x + steps * np.cos(directions)) // CELL).astype(int).clip(0, level.grid.columns - 1)
    rows = ((y + steps * np.sin(directions)) // CELL).astype(int).clip(0, level.grid.rows - 1)
    blocked = ~level.free[rows, columns]  # the grid's rim is rock, so clipping cannot open a way
    return np.where(blocked.any(axis=1), blocked.argmax(axis=1) * RAY_STEP, limit)


def sees(level: Level, x: float, y: float, heading: float, distance: float) -> bool:
    """Whether the straight line from a point along a heading (degrees) is free for a distance."""
    return bool(ray_lengths(level, x, y, np.array([heading]), distance)[0] >= distance)
