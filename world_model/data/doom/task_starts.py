"""Starts of a task: places in fresh levels from which its goal is in view, with the first few frames of standing there.

Each start is in a level of its own. Visit ``v`` of a (task, split, seed) is always the same, so that a longer list
begins with the shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count as count_from
from itertools import islice
from typing import Any

import numpy as np

from world_model.controls import FIRST_PERSON, FrameAction, StructuredCaption
from world_model.data.doom.engine import Look, Start
from world_model.data.doom.game import DoomGame, Step
from world_model.data.doom.levels import Level, random_level
from world_model.data.doom.recipe import LEVEL_SEEDS, SPLITS
from world_model.data.doom.starts import choose_look, choose_start, choose_start_facing
from world_model.data.doom.tasks import EXPLORE, TASKS

LEVELS_PER_GAME = 64  # a new engine and level file after so many
LOOK_AROUND = 8.0  # degrees to either side of the start's heading; with `starts.OFF_GOAL` the goal stays in the picture
TARGETS = {EXPLORE: None, **{task.name: task.target for task in TASKS}}  # what is in view, by task


@dataclass(frozen=True)
class TaskStart:
    """One recorded start.

    ``frames`` uint8 ``[T, H, W, 3]`` in first person and the rows ``actions`` float32 ``[T, 6]`` that led to them, the
    first one idle; ``caption`` describes the newest frame, with the character as third person shows it; ``origin``
    holds ``level_seed`` and the fields of the engine's ``start`` and ``look``, JSON-able.
    """

    frames: np.ndarray
    actions: np.ndarray
    caption: StructuredCaption
    origin: dict[str, Any]


def record_task_starts(
    task: str, count: int, *, split: str, seed: int = 0, frames: int = 4, size: int = 64
) -> Iterator[TaskStart]:
    """``count`` starts of a task, all in different levels of the split, of ``frames`` frames of ``size`` pixels.

    Raises:
        ValueError: at once, for an unknown task or split, or impossible numbers.
    """
    if task not in TARGETS:
        raise ValueError(f"the task is {task!r}; starts can be recorded for {', '.join(TARGETS)}")
    if split not in LEVEL_SEEDS:
        raise ValueError(f"the split is {split!r}; choose one of {', '.join(LEVEL_SEEDS)}")
    if count < 1 or frames < 1 or seed < 0:
        raise ValueError(f"count is {count}, frames {frames} and seed {seed}; give at least 1 start, 1 frame, seed 0")
    return _recorded(task, _places(task, split, seed, frames), count, size)


@dataclass(frozen=True)
class _Place:
    """Where to begin, and the T - 1 rows ``[6]`` to play there."""

    level: Level
    start: Start
    look: Look
    rows: list[np.ndarray]


def _places(task: str, split: str, seed: int, frames: int) -> Iterator[_Place]:
    """Endless places in different levels."""
    seeds, seen = LEVEL_SEEDS[split], set()
    for visit in count_from():
        rng = np.random.default_rng([seed, SPLITS.index(split), list(TARGETS).index(task), visit])
        level_seed = seeds[int(rng.integers(len(seeds)))]
        level, look = random_level(level_seed), choose_look(rng)
        target = TARGETS[task]
        start = choose_start(level, rng) if target is None else choose_start_facing(level, target, rng)
        if start is not None and level_seed not in seen:
            seen.add(level_seed)
            yield _Place(level, start, look, _look_around(rng, frames - 1))


def _look_around(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    """Rows that turn a little on the spot."""
    headings = np.concatenate([[0.0], rng.uniform(-LOOK_AROUND, LOOK_AROUND, rows)])
    return [FrameAction(yaw=float(yaw)).row() for yaw in np.diff(headings)]


def _recorded(task: str, places: Iterator[_Place], missing: int, size: int) -> Iterator[TaskStart]:
    """So many starts, at those places where standing does not fulfil the task already."""
    while missing:
        batch = list(islice(places, min(missing, LEVELS_PER_GAME)))
        game = DoomGame([place.level for place in batch], size)
        try:
            for index, place in enumerate(batch):
                steps = [game.reset(index, place.start, place.look, FIRST_PERSON), *map(game.step, place.rows)]
                if not any(step.terminated.get(task) or step.rewards.get(task) for step in steps):
                    missing -= 1
                    yield _start(place, steps)
        finally:
            game.close()


def _start(place: _Place, steps: list[Step]) -> TaskStart:
    return TaskStart(
        np.stack([step.frame for step in steps]),
        np.stack([step.action for step in steps]),
        steps[-1].caption.replace(character=place.look.caption()),
        {"level_seed": place.level.seed, "start": asdict(place.start), "look": asdict(place.look)},
    )
