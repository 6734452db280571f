"""Where clips are played: an engine with the levels that a run of clips needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from world_model.data.clips import Clip
from world_model.data.doom.freedoom import FreedoomStudio
from world_model.data.doom.game import DoomGame
from world_model.data.doom.levels import random_level
from world_model.data.doom.recipe import Recipe
from world_model.data.doom.take import Take


class Studio(Protocol):
    """Records clips by index."""

    def record(self, index: int) -> Clip: ...

    def close(self) -> None: ...


class LevelStudio:
    """Records clips in generated levels."""

    def __init__(self, recipe: Recipe, clips: list[int], with_events: bool = True):
        self.recipe, self.with_events = recipe, with_events
        seeds = list(dict.fromkeys(recipe.level_seed(index) for index in clips))
        self.number = {seed: k for k, seed in enumerate(seeds)}
        self.game = DoomGame([random_level(seed) for seed in seeds], recipe.size)

    def record(self, index: int) -> Clip:
        """Record the clip of that index."""
        take = Take(self.game, self.number[self.recipe.level_seed(index)], self.recipe, index)
        take.event_frame = take.event_frame if self.with_events else None
        return take.record()

    def close(self) -> None:
        """End the engine."""
        self.game.close()


@contextmanager
def open_studio(recipe: Recipe, clips: list[int]) -> Iterator[Studio]:
    """The studio for the recipe's split, closed in the end."""
    studio = FreedoomStudio(recipe) if recipe.split == "freedoom" else LevelStudio(recipe, clips)
    try:
        yield studio
    finally:
        studio.close()
