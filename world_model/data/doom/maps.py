"""UDMF level geometry from a grid of cells; the engine builds the BSP nodes itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from world_model.data.doom.wad import Lump

CELL = 64  # map units; a texture is 128 wide, so it repeats every two cells
SOLID = -1
DOOR_RAISE = 12  # line special: open, wait, close; args are tag, speed in 1/8 unit per tic, wait in tics
DOOR_SPEED, DOOR_WAIT = 96, 175

Vertex = tuple[int, int]
Edge = tuple[Vertex, Vertex]


@dataclass(frozen=True)
class Sector:
    """One floor-and-ceiling area. ``door_tag`` makes it a door (closed at the start); ``opens_tag`` makes
    every line around it open that door when crossed, so that doors need no USE button."""

    floor: str
    ceiling: str
    wall: str
    light: int
    height: int = 128
    door_tag: int = 0
    opens_tag: int = 0

    def udmf(self) -> str:
        ceiling_height = 0 if self.door_tag else self.height
        tag = f" id = {self.door_tag};" if self.door_tag else ""
        return (
            f'sector {{ heightfloor = 0; heightceiling = {ceiling_height}; texturefloor = "{self.floor}"; '
            f'textureceiling = "{self.ceiling}"; lightlevel = {self.light};{tag} }}'
        )


@dataclass
class GridMap:
    """A level as a grid ``cells[row, column]`` of sector indices (``SOLID`` = rock), `CELL` units per cell."""

    columns: int
    rows: int
    sectors: list[Sector] = field(default_factory=list)
    things: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.cells = np.full((self.rows, self.columns), SOLID, dtype=np.int32)

    def fill(self, sector: Sector, x0: int, y0: int, x1: int, y1: int) -> None:
        """Put one sector on the cells ``x0 <= x < x1``, ``y0 <= y < y1``."""
        self.cells[y0:y1, x0:x1] = len(self.sectors)
        self.sectors.append(sector)

    def thing(self, editor_number: int, x: float, y: float, angle: int = 0, tid: int = 0) -> None:
        """Place an actor by its editor number; ``tid`` names it for later specials."""
        skills = " ".join(f"skill{k} = true;" for k in range(1, 6))
        classes = " ".join(f"class{k} = true;" for k in range(1, 9))
        self.things.append(
            f"thing {{ type = {editor_number}; x = {x:.1f}; y = {y:.1f}; angle = {angle}; id = {tid}; "
            f"{skills} {classes} single = true; }}"
        )

    def lumps(self, name: str) -> list[Lump]:
        """The level as the three lumps of a UDMF map."""
        return [(name, b""), ("TEXTMAP", self.textmap().encode()), ("ENDMAP", b"")]

    def textmap(self) -> str:
        """The level as UDMF text."""
        vertices: dict[Vertex, int] = {}
        lines, sides = [], []
        for start, end, (front, back) in self._walls():
            if back != SOLID and self.sectors[front].door_tag:
                start, end, front, back = end, start, back, front  # a door's front faces the room
            first_side = len(sides)
            numbers = [vertices.setdefault(v, len(vertices)) for v in (start, end)]
            line = f"linedef {{ v1 = {numbers[0]}; v2 = {numbers[1]}; sidefront = {first_side};"
            if back == SOLID:
                pegged = " dontpegbottom = true;" if self.sectors[front].door_tag else ""
                sides.append(f'sidedef {{ sector = {front}; texturemiddle = "{self.sectors[front].wall}"; }}')
                lines.append(f"{line} blocking = true;{pegged} }}")
            else:
                sides += [self._open_side(front, back), self._open_side(back, front)]
                lines.append(f"{line} sideback = {first_side + 1}; twosided = true;{self._trigger(front, back)} }}")
        points = [f"vertex {{ x = {x * CELL}.0; y = {y * CELL}.0; }}" for x, y in vertices]
        sectors = [sector.udmf() for sector in self.sectors]
        return "\n".join(['namespace = "zdoom";', *points, *lines, *sides, *sectors, *self.things, ""])

    def _open_side(self, here: int, there: int) -> str:
        shown = self.sectors[there if self.sectors[there].door_tag else here].wall
        return f'sidedef {{ sector = {here}; texturetop = "{shown}"; texturebottom = "{shown}"; }}'

    def _trigger(self, front: int, back: int) -> str:
        tag = self.sectors[front].opens_tag or self.sectors[back].opens_tag
        if not tag or self.sectors[back].door_tag:
            return ""
        return (
            f" special = {DOOR_RAISE}; arg0 = {tag}; arg1 = {DOOR_SPEED}; arg2 = {DOOR_WAIT};"
            " playercross = true; repeatspecial = true;"
        )

    def _unit_edges(self) -> dict[Edge, tuple[int, int]]:
        """Cell borders between unlike sectors as ``(from, to) -> (front, back)``; front lies to the right."""
        padded = np.pad(self.cells, 1, constant_values=SOLID)
        edges: dict[Edge, tuple[int, int]] = {}
        left, right = padded[1:-1, :-1], padded[1:-1, 1:]
        for y, x in zip(*(axis.tolist() for axis in np.nonzero(left != right)), strict=True):
            low, high, west, east = (x, y), (x, y + 1), int(left[y, x]), int(right[y, x])
            edges.update({(low, high): (east, west)} if east != SOLID else {(high, low): (west, east)})
        below, above = padded[:-1, 1:-1], padded[1:, 1:-1]
        for y, x in zip(*(axis.tolist() for axis in np.nonzero(below != above)), strict=True):
            near, far, south, north = (x, y), (x + 1, y), int(below[y, x]), int(above[y, x])
            edges.update({(near, far): (south, north)} if south != SOLID else {(far, near): (north, south)})
        return edges

    def _walls(self) -> list[tuple[Vertex, Vertex, tuple[int, int]]]:
        """Unit edges merged into maximal straight runs."""
        edges = self._unit_edges()
        touching: dict[Vertex, list[Edge]] = {}
        for edge in edges:
            for vertex in edge:
                touching.setdefault(vertex, []).append(edge)

        def follows(edge: Edge, other: Edge) -> bool:
            straight = edge[1][0] - edge[0][0] == other[1][0] - other[0][0]
            return edge[1] == other[0] and straight and edges[edge] == edges[other]

        following: dict[Edge, Edge] = {}
        for pair in touching.values():
            if len(pair) == 2:
                for first, second in (pair, pair[::-1]):
                    if follows(first, second):
                        following[first] = second
        starts = edges.keys() - following.values()
        runs = []
        for start in sorted(starts):  # sorted: a set's order must not decide the order of lines in the file
            end = start
            while end in following:
                end = following[end]
            runs.append((start[0], end[1], edges[start]))
        return runs
