"""Random levels: rooms, courtyards and corridors on a lattice, furnished, with their exact description."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from world_model.data.doom import actors, art
from world_model.data.doom.actors import EXIT, HEALTH_PACK, OBJECTS, ObjectKind
from world_model.data.doom.maps import CELL, SOLID, GridMap, Sector
from world_model.data.doom.task_names import NAMED_GOAL
from world_model.data.doom.wad import write_wad

PITCH = 11  # cells between neighbouring room centres
ROOM_CELLS = (7, 10)  # a room's side: 7 to 9 cells, so that a wall is seldom closer than a few steps
CORRIDOR_WIDTH = 2
LIGHTS = {"bright": 255, "well lit": 216, "dim": 168}
SKY_LIGHT = {"day": 240, "dusk": 208, "night": 168}
COURTYARD_SHARE, DOOR_SHARE = 0.35, 0.4
PLAYER_START = 1


@dataclass(frozen=True)
class Area:
    """A room, courtyard or corridor: cells ``x0 <= x < x1``, ``y0 <= y < y1`` and how it looks."""

    kind: str  # "room", "courtyard" or "corridor"
    x0: int
    y0: int
    x1: int
    y1: int
    wall: tuple[str, str]  # pattern, colour
    floor: tuple[str, str]
    ceiling: str  # colour; unused under the sky
    light: str  # a key of `LIGHTS`, or of `SKY_LIGHT` under the sky

    def sector(self) -> Sector:
        outdoors = self.kind == "courtyard"
        return Sector(
            floor=art.floor_name(*self.floor),
            ceiling="F_SKY1" if outdoors else art.floor_name("plain", self.ceiling),
            wall=art.wall_name(*self.wall),
            light=SKY_LIGHT[self.light] if outdoors else LIGHTS[self.light],
            height=96 if self.kind == "corridor" else 128,
        )


@dataclass(frozen=True)
class Placed:
    """An object in the level: its kind, its place in map units, its thing id and the area that holds it."""

    kind: ObjectKind
    x: float
    y: float
    tid: int
    area: int


@dataclass(frozen=True)
class Door:
    """A door that opens by itself when approached: sector tag and place in map units."""

    tag: int
    x: float
    y: float


@dataclass(eq=False)
class Level:
    """A level and all that is true about it. ``free[row, column]`` marks cells that can be walked on,
    ``area_at[row, column]`` holds the index into ``areas`` or -1."""

    seed: int
    sky: str
    grid: GridMap
    areas: list[Area] = field(default_factory=list)
    doors: list[Door] = field(default_factory=list)
    objects: list[Placed] = field(default_factory=list)

    def __post_init__(self):
        self.area_at = np.full(self.grid.cells.shape, -1, dtype=np.int32)

    def area_index(self, x: float, y: float) -> int:
        """The index of the area that holds a point in map units, -1 in rock."""
        column, row = int(x // CELL), int(y // CELL)
        inside = 0 <= row < self.grid.rows and 0 <= column < self.grid.columns
        return int(self.area_at[row, column]) if inside else -1

    def finish(self) -> Level:
        """Derive the walking grid once all areas and objects stand."""
        self.free = self.grid.cells != SOLID
        for placed in self.objects:
            if placed.kind.radius:
                self.free[int(placed.y // CELL), int(placed.x // CELL)] = False
        self.closed = self.grid.cells == SOLID  # rock and doors: what a collision-free path must keep away from
        for door in self.doors:
            column, row = int(door.x // CELL), int(door.y // CELL)
            reach = slice(max(row - 1, 0), row + 2), slice(max(column - 1, 0), column + 2)
            doors = np.array([sector.door_tag == door.tag for sector in self.grid.sectors])
            self.closed[reach] |= doors[self.grid.cells[reach]] & (self.grid.cells[reach] != SOLID)
        return self

    def free_cells(self) -> np.ndarray:
        """All walkable cells as int ``[K, 2]`` (column, row)."""
        return np.argwhere(self.free)[:, ::-1]

    def named(self, name: str) -> list[Placed]:
        """The objects of that name."""
        return [placed for placed in self.objects if placed.kind.name == name]


def centre(column: int, row: int) -> tuple[float, float]:
    """A cell's centre in map units."""
    return (column + 0.5) * CELL, (row + 0.5) * CELL


def _choice(rng: np.random.Generator, options):
    options = list(options)
    return options[int(rng.integers(len(options)))]


def _look(rng: np.random.Generator, kind: str, sky: str) -> dict:
    wall_colour = _choice(rng, art.COLOURS)
    floor_colour = _choice(rng, [c for c in art.FLOOR_COLOURS if c != wall_colour])
    ceiling = _choice(rng, [c for c in ("white", "grey", "brown") if c not in (wall_colour, floor_colour)])
    return {
        "wall": (_choice(rng, art.PATTERNS), wall_colour),
        "floor": (_choice(rng, art.FLOOR_PATTERNS), floor_colour),
        "ceiling": ceiling,
        "light": sky if kind == "courtyard" else _choice(rng, LIGHTS),
    }


def _add_area(level: Level, area: Area) -> int:
    level.grid.fill(area.sector(), area.x0, area.y0, area.x1, area.y1)
    level.area_at[area.y0 : area.y1, area.x0 : area.x1] = len(level.areas)
    level.areas.append(area)
    return len(level.areas) - 1


def _connect(level: Level, rng: np.random.Generator, first: Area, second: Area) -> None:
    """Join two lattice neighbours (second to the east or north) by a straight corridor, perhaps with a door."""
    eastward = second.x0 >= first.x1
    low, high = (
        (max(first.y0, second.y0), min(first.y1, second.y1))
        if eastward
        else (max(first.x0, second.x0), min(first.x1, second.x1))
    )
    side = int(rng.integers(low, high - CORRIDOR_WIDTH + 1))
    begin, end = (first.x1, second.x0) if eastward else (first.y1, second.y0)

    def box(start: int, stop: int) -> tuple[int, int, int, int]:
        across = (side, side + CORRIDOR_WIDTH)
        return (start, across[0], stop, across[1]) if eastward else (across[0], start, across[1], stop)

    look = _look(rng, "corridor", level.sky)
    _add_area(level, Area("corridor", *box(begin, end), **look))
    if end - begin >= 3 and rng.random() < DOOR_SHARE:
        tag, middle = 100 + len(level.doors), (begin + end) // 2
        sector = level.areas[-1].sector()
        level.grid.fill(replace(sector, opens_tag=tag), *box(begin, middle))
        level.grid.fill(replace(sector, opens_tag=tag), *box(middle + 1, end))
        level.grid.fill(replace(sector, door_tag=tag, wall="DOORWALL"), *box(middle, middle + 1))
        x0, y0, x1, y1 = box(middle, middle + 1)
        level.doors.append(Door(tag, (x0 + x1) / 2 * CELL, (y0 + y1) / 2 * CELL))


def _furnish(level: Level, rng: np.random.Generator, rooms: int) -> None:
    """Put the goal, the exit, two health packs and one to three objects per room on cells apart from each other."""
    wanted = [(int(rng.integers(rooms)), OBJECTS[name]) for name in (NAMED_GOAL, EXIT, HEALTH_PACK, HEALTH_PACK)]
    decorations = [kind for kind in (*actors.OWN_SHAPES, *actors.DECORATIONS) if kind.name != NAMED_GOAL]
    shapes = len(actors.OWN_SHAPES) - 1
    for room in range(rooms):
        for _ in range(int(rng.integers(1, 4))):
            own = rng.random() < 0.7
            kind = decorations[int(rng.integers(shapes) if own else rng.integers(shapes, len(decorations)))]
            wanted.append((room, kind))
    taken: list[tuple[int, int]] = []
    for room, kind in wanted:
        area = level.areas[room]
        spots = [
            (column, row)
            for column in range(area.x0 + 1, area.x1 - 1)
            for row in range(area.y0 + 1, area.y1 - 1)
            if all(abs(column - c) + abs(row - r) >= 3 for c, r in taken)
        ]
        if not spots:
            continue
        spot = _choice(rng, spots)
        taken.append(spot)
        placed = Placed(kind, *centre(*spot), tid=1000 + len(level.objects), area=room)
        level.objects.append(placed)
        level.grid.thing(actors.EDITOR_NUMBERS[kind.name], placed.x, placed.y, tid=placed.tid)


def random_level(seed: int) -> Level:
    """The level of a seed: 1-3 by 1-2 rooms joined by corridors; the same seed gives the same level."""
    rng = np.random.default_rng(seed)
    across, along = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    sky = _choice(rng, SKY_LIGHT)
    level = Level(seed, sky, GridMap(across * PITCH + 2, along * PITCH + 2))
    rooms: dict[tuple[int, int], Area] = {}
    for j in range(along):
        for i in range(across):
            width, depth = (int(v) for v in rng.integers(*ROOM_CELLS, size=2))
            x0 = 1 + i * PITCH + int(rng.integers(PITCH - width))
            y0 = 1 + j * PITCH + int(rng.integers(PITCH - depth))
            kind = "courtyard" if rng.random() < COURTYARD_SHARE else "room"
            area = Area(kind, x0, y0, x0 + width, y0 + depth, **_look(rng, kind, sky))
            rooms[i, j] = area
            _add_area(level, area)
    for (i, j), area in rooms.items():
        for neighbour in ((i + 1, j), (i, j + 1)):
            if neighbour in rooms:
                _connect(level, rng, area, rooms[neighbour])
    _furnish(level, rng, len(rooms))
    start = level.areas[0]
    level.grid.thing(PLAYER_START, *centre((start.x0 + start.x1) // 2, (start.y0 + start.y1) // 2))
    return level.finish()


def map_name(index: int) -> str:
    """The name of the WAD's map number ``index``."""
    return f"L{index:04d}"


def write_levels(path: Path, levels: list[Level]) -> None:
    """One WAD with the given levels as maps ``L0000``, ``L0001``, ... and all art and actors."""
    names = [map_name(k) for k in range(len(levels))]
    skies = {name: art.SKIES[level.sky] for name, level in zip(names, levels, strict=True)}
    lumps = [("DECORATE", actors.decorate().encode()), ("MAPINFO", actors.mapinfo(skies).encode()), *art.lumps()]
    for name, level in zip(names, levels, strict=True):
        lumps += level.grid.lumps(name)
    write_wad(path, lumps)
