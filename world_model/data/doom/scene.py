"""The scene caption: what is true about the place the player stands in, in one fixed wording."""

from __future__ import annotations

from collections import Counter

from world_model.data.doom.art import FLOOR_PATTERNS, PATTERNS
from world_model.data.doom.levels import Level, Placed

SKY_WORDS = {
    "day": "under a blue sky",
    "dusk": "under a sunset sky",
    "night": "under a night sky with a white moon",
    "overcast": "under a grey sky",
}
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}


def listing(names: list[str]) -> str:
    """``["red ball", "box", "box"]`` -> ``"a red ball and two boxes"`` (names sorted, at least one)."""
    words = []
    for name, count in sorted(Counter(names).items()):
        article = ("an " if name[0] in "aeiou" else "a ") if count == 1 else f"{COUNTS.get(count, 'many')} "
        plural = "" if count == 1 else "es" if name[-1] in "xh" else "s"
        words.append(article + name + plural)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


class Scene:
    """A level as it is now: events and pickups change it, `caption` tells it."""

    def __init__(self, level: Level):
        self.level = level
        self.sky = level.sky
        self._light = ""  # replaces the light of every area once set
        self._remark = ""  # fog or coloured light
        self.objects = list(level.objects)  # all that are there now
        self._still_told: list[Placed] = []  # gone, but in the caption until the event that took them is over
        self._told: dict[int, str] = {}  # area index -> caption; forgotten when anything changes

    def add(self, placed: Placed) -> None:
        """An object has appeared."""
        self.objects.append(placed)
        self._told.clear()

    def remove(self, tid: int) -> None:
        """The object with that thing id is gone."""
        self.objects = [placed for placed in self.objects if placed.tid != tid]
        self._still_told = [placed for placed in self._still_told if placed.tid != tid]
        self._told.clear()

    def take_away(self, tid: int) -> None:
        """The object with that thing id is gone, and the caption goes on to tell it until it is removed."""
        self._still_told += [placed for placed in self.objects if placed.tid == tid]
        self.objects = [placed for placed in self.objects if placed.tid != tid]

    def change(self, sky: str = "", light: str = "", remark: str = "") -> None:
        """A lasting change of sky (a key of `SKY_WORDS`) or light; what is not given stays."""
        self.sky, self._light, self._remark = sky or self.sky, light or self._light, remark or self._remark
        self._told.clear()

    def caption(self, x: float, y: float) -> str:
        """Describe the area that holds the point (map units)."""
        index = self.level.area_index(x, y)
        if index not in self._told:
            self._told[index] = self._describe(index)
        return self._told[index]

    def _describe(self, index: int) -> str:
        area = self.level.areas[max(index, 0)]
        pattern, colour = area.wall
        floor = f"a {FLOOR_PATTERNS[area.floor[0]]} {area.floor[1]} floor"
        text = f"a {area.kind} with {PATTERNS[pattern]} {colour} walls"
        if area.kind == "courtyard":
            text += f" and {floor}, {SKY_WORDS[self.sky]}" + (f", {self._light}" if self._light else "")
        else:
            text += f", {floor} and a {area.ceiling} ceiling, {self._light or area.light}"
        if self._remark:
            text += f", {self._remark}"
        held = [placed.kind.name for placed in (*self.objects, *self._still_told) if placed.area == index]
        return f"{text}; it holds {listing(held)}" if held else text
