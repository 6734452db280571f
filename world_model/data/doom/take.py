"""One recorded clip: what it shows is planned from the recipe and the clip's index alone, then played."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from world_model.controls import FIRST_PERSON, PERSPECTIVE, THIRD_PERSON, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.doom.attempts import FailedAttempt
from world_model.data.doom.engine import Start
from world_model.data.doom.events import BUILDERS, CATEGORIES, INTERACTION, KINDS, OBJECTS_CHANGE, TRANSITION, Event
from world_model.data.doom.game import DoomGame, Step
from world_model.data.doom.mixes import MIXES
from world_model.data.doom.policies import Policy, TaskWalker
from world_model.data.doom.recipe import Recipe
from world_model.data.doom.revisits import ThereAndBack
from world_model.data.doom.starts import choose_look, choose_start, choose_start_facing
from world_model.data.doom.tasks import TASKS, CollectHealth, WalkTo

FIRST_EVENT_FRAME, FRAMES_AFTER_EVENT = 6, 14
TWIN_FRAMES = 12  # how long an event has to show itself
PIXEL_CHANGE = 12  # grey levels in any channel that count as changed
VISIBLE_SHARE = {  # of the pixels, in the frame that differs most; without event it is 0
    TRANSITION: 0.1,  # light and weather concern the whole picture
    OBJECTS_CHANGE: 0.008,  # 6 x 6 of 64 x 64
    INTERACTION: 0.008,
}

SOURCE = "ViZDoom, generated level {seed}"
LICENCE = "own levels and art; characters, weapons and some objects from Freedoom (BSD-3-Clause)"


class Take:
    """Records one clip in a running game."""

    def __init__(self, game: DoomGame, level: int, recipe: Recipe, index: int):
        self.game, self.level, self.recipe, self.index = game, level, recipe, index
        self.rng = rng = recipe.generator(index, purpose=1)
        self.mix = MIXES[recipe.play]
        self.task: WalkTo | CollectHealth | None = None
        self.start = self._choose_start()
        self.look = choose_look(rng)
        self.policy = self._choose_policy()
        self.views = self._choose_views()
        self.event_frame = self._choose_event_frame()
        self.event: Event | None = None
        self.rows: list[np.ndarray] = []
        self.steps: list[Step] = []

    def _choose_start(self) -> Start:
        """Where the mix wants it: anywhere, or before the goal of a task, which is then the clip's."""
        level = self.game.levels[self.level]
        if self.mix.facing:
            for number in self.rng.permutation(len(TASKS)):
                start = choose_start_facing(level, TASKS[number].target, self.rng)
                if start is not None:
                    self.task = TASKS[number]
                    return start
        return choose_start(level, self.rng)

    def _choose_policy(self) -> Policy:
        shares = self.mix.shares
        kind = tuple(shares)[int(self.rng.choice(len(shares), p=list(shares.values())))]
        if issubclass(kind, ThereAndBack):
            return kind(self.rng, self.recipe.frames - 1)
        if kind in (TaskWalker, FailedAttempt):
            self.task = self.task or TASKS[int(self.rng.integers(len(TASKS)))]
            return kind(self.rng, self.task)
        return kind(self.rng)

    def _choose_views(self) -> np.ndarray:
        """The perspective of every frame, int ``[T]``."""
        frames, rng = self.recipe.frames, self.rng
        views = np.full(frames, FIRST_PERSON if rng.random() < self.mix.first_person else THIRD_PERSON)
        if not isinstance(self.policy, ThereAndBack) and rng.random() < self.mix.switching:
            for switch in rng.integers(min(4, frames - 1), frames, size=int(rng.integers(1, 3))):
                views[switch:] = 1 - views[switch:]
        return views

    def _choose_event_frame(self) -> int | None:
        last = self.recipe.frames - FRAMES_AFTER_EVENT
        wanted = self.rng.random() < self.mix.events and not isinstance(self.policy, ThereAndBack)
        return int(self.rng.integers(FIRST_EVENT_FRAME, last)) if wanted and last > FIRST_EVENT_FRAME else None

    def record(self) -> Clip:
        """Play the clip and return it."""
        self.steps = [self._reset()]
        if self.event_frame is not None:
            self._play(self.event_frame - 1)
            self._play_event()
        self._play(self.recipe.frames - len(self.steps))
        return self._clip()

    def _reset(self) -> Step:
        return self.game.reset(self.level, self.start, self.look, int(self.views[0]))

    def _play(self, frames: int) -> None:
        for _ in range(frames):
            row = self.policy(self.game).copy()
            row[PERSPECTIVE] = self.views[len(self.steps)]
            self.rows.append(row)
            self.steps.append(self.game.step(row))

    def _play_event(self) -> None:
        """Play the next frames without the event, then again with it; keep it only if it can be seen."""
        event, before = self._choose_event(), len(self.steps)
        if event is None:
            return
        self._play(TWIN_FRAMES)
        shown = self._play_again(before, event)
        if is_visible(event, self.steps[before:], shown):
            self.event, self.steps[before:] = event, shown
        else:
            self._reset()
            self.game.replay(self.steps)

    def _play_again(self, before: int, event: Event) -> list[Step]:
        """All played frames from frame ``before`` on once more, this time with the event."""
        self._reset()
        self.game.replay(self.steps[:before])
        self.game.begin(event)
        return [self.game.step(row) for row in self.rows[before - 1 :]]

    def _choose_event(self) -> Event | None:
        """An event that can happen here and now; categories are equally likely, and so are the kinds of one."""
        for category in self.rng.permutation(CATEGORIES):
            for kind in self.rng.permutation(KINDS[category]):
                event = BUILDERS[kind](self.game, self.rng)
                if event:
                    return event
        return None

    def _clip(self) -> Clip:
        steps = self.steps
        level_seed = self.game.levels[self.level].seed
        event = None
        if self.event:
            event = {"kind": self.event.kind, "category": self.event.category, "caption": self.event.caption}
            event |= {"start": self.event_frame, "frames": self.event.frames}
        return Clip(
            frames=np.stack([step.frame for step in steps]),
            actions=np.stack([step.action for step in steps]),
            captions=caption_changes([step.caption for step in steps]),
            pose=np.stack([step.pose for step in steps]),
            rewards={task.name: np.array([s.rewards[task.name] for s in steps], np.float32) for task in TASKS},
            terminated={task.name: np.array([s.terminated[task.name] for s in steps]) for task in TASKS},
            source=SOURCE.format(seed=level_seed),
            licence=LICENCE,
            meta={
                **self.recipe.told(),
                "clip": self.index,
                "level_seed": level_seed,
                "policy": type(self.policy).__name__,
                "event": event,
                "look": asdict(self.look),
            },
        )


def change(twin: list[Step], shown: list[Step]) -> float:
    """The share of pixels that differ, in the frame pair that differs most."""
    frames, others = (np.stack([step.frame for step in steps]).astype(np.int16) for steps in (twin, shown))
    return float((np.abs(frames - others).max(axis=-1) > PIXEL_CHANGE).mean(axis=(1, 2)).max())


def is_visible(event: Event, twin: list[Step], shown: list[Step]) -> bool:
    """Whether the event shows in the frames with it, beside the twin's frames without it."""
    return change(twin, shown) >= VISIBLE_SHARE[event.category]


def caption_changes(captions: list[StructuredCaption]) -> tuple[tuple[int, StructuredCaption], ...]:
    """One caption per frame -> (first frame, caption) wherever it changes."""
    return tuple((t, c) for t, c in enumerate(captions) if t == 0 or c != captions[t - 1])
