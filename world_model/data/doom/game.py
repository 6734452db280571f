"""The game as everyone above uses it: action rows in, frames with captions, pose and true rewards out."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from world_model.controls import FIRST_PERSON, NOTHING, StructuredCaption
from world_model.data.doom.actors import HEALTH_PACK
from world_model.data.doom.engine import DoomEngine, Look, Start
from world_model.data.doom.events import Event
from world_model.data.doom.levels import Level, map_name, write_levels
from world_model.data.doom.motion import ELEVATION, HEADING, X, Y
from world_model.data.doom.navigation import ray_lengths
from world_model.data.doom.scene import Scene
from world_model.data.doom.tasks import TASKS, distance

RAYS, SIGHT = np.arange(-36.0, 37.0, 9.0), 320.0  # degrees from straight ahead, right positive; map units


@dataclass(frozen=True)
class Step:
    """One played frame. ``rewards`` and ``terminated`` belong to the transition that ``action`` made."""

    frame: np.ndarray  # uint8 [H, W, 3]
    action: np.ndarray  # float32 [6], as applied
    pose: np.ndarray  # float32 [5]: x, y, z in map units, heading (counter-clockwise from east), pitch (up positive)
    rewards: dict[str, float]
    terminated: dict[str, bool]
    caption: StructuredCaption
    packs_taken: int = 0
    ended: bool = False  # the game itself is over (Freedoom's own maps only); the frame is the last real one


class DoomGame:
    """A live Doom game in generated levels.

    >>> game = DoomGame([random_level(7)])            # doctest: +SKIP
    >>> first = game.reset(0, Start(320, 320, 90, seed=1), Look("Marine", "red"), FIRST_PERSON)
    >>> step = game.step(FrameAction(yaw=10, longitudinal=1).row())
    """

    def __init__(self, levels: list[Level], size: int = 64, wad: Path | None = None):
        """Start the engine (about 0.15 s) with these levels; ``wad`` is a file that `write_levels` made of them, None
        to write one."""
        self.levels = levels
        self._folder = tempfile.TemporaryDirectory(prefix="doom-levels-", ignore_cleanup_errors=True)
        if wad is None:
            wad = Path(self._folder.name) / "levels.wad"
            write_levels(wad, levels)
        self.engine = DoomEngine(wad, map_name(0), size)

    def close(self) -> None:
        """End the engine and remove the level file."""
        self.engine.close()
        self._folder.cleanup()

    def reset(self, level: int, start: Start, look: Look, perspective: int = FIRST_PERSON) -> Step:
        """Begin an episode in ``levels[level]``; the returned step's action is idle."""
        self.level = self.levels[level]
        self.scene = Scene(self.level)
        self.look = look
        self.event: Event | None = None
        self._event_age = 0
        self.open_tasks = {task.name: task for task in TASKS}
        self.engine.reset(map_name(level), start, look, perspective)
        self._items = self.engine.items
        nothing = {task.name: 0.0 for task in TASKS}
        idle = np.array([0, 0, 0, 0, perspective, 0], dtype=np.float32)
        return self._step(idle, nothing, dict.fromkeys(nothing, False), packs_taken=0)

    def begin(self, event: Event) -> None:
        """Let an event start with the next step."""
        self.event, self._event_age = event, 0

    def step(self, row: np.ndarray) -> Step:
        """Play one action row ``[6]`` (see `FrameAction`)."""
        if self.event:
            self._run_event(self.event)
        action = self.engine.step(row)
        taken, self._items = self.engine.items - self._items, self.engine.items
        self._take_packs(self.pose, taken)
        rewards = {task.name: 0.0 for task in TASKS}
        terminated = dict.fromkeys(rewards, False)
        pose = self.pose.tolist()
        for name, task in list(self.open_tasks.items()):
            rewards[name], terminated[name] = task.judge(self.scene, pose, taken)
            if terminated[name]:
                del self.open_tasks[name]
        return self._step(action, rewards, terminated, taken)

    def replay(self, steps: list[Step]) -> None:
        """Come back to the state after ``steps``, which began with a `reset` like the last one and saw no event.

        The same actions lead to the same state, so nobody has to look until the last one. What a step earned is
        taken from the step itself, because the engine tells nothing of what it does not show.
        """
        for before, step in zip(steps, steps[1:], strict=False):
            self.engine.repeat(step.action, float(before.pose[ELEVATION]), look=step is steps[-1])
            self._take_packs(step.pose, step.packs_taken)
            for name, ended in step.terminated.items():
                if ended:
                    del self.open_tasks[name]
        self._items = self.engine.items

    def _run_event(self, event: Event) -> None:
        if self._event_age == event.frames:
            event.settle(self)
            self.event = None
        else:
            if self._event_age == 0:
                for tid in event.takes_away:
                    self.scene.take_away(tid)
            self.engine.command(*event.commands.get(self._event_age, ()))
            self._event_age += 1

    @property
    def pose(self) -> np.ndarray:
        """The player's pose now, float32 ``[5]``."""
        return self.engine.pose

    def distances(self) -> tuple[float, float, float]:
        """How far away the nearest things are to the left, ahead and to the right, in map units."""
        x, y, heading = (float(self.pose[column]) for column in (X, Y, HEADING))
        lengths = ray_lengths(self.level, x, y, heading - RAYS, SIGHT)
        return tuple(lengths.reshape(3, -1).mean(axis=1).tolist())

    def caption(self) -> StructuredCaption:
        """The structured caption now in force."""
        return StructuredCaption(
            scene=self.scene.caption(float(self.pose[X]), float(self.pose[Y])),
            character=NOTHING if self.engine.perspective == FIRST_PERSON else self.look.caption(),
            event=self.event.caption if self.event else NOTHING,
        )

    def _step(
        self, action: np.ndarray, rewards: dict[str, float], terminated: dict[str, bool], packs_taken: int
    ) -> Step:
        engine = self.engine
        return Step(engine.frame, action, engine.pose, rewards, terminated, self.caption(), packs_taken, engine.ended)

    def _take_packs(self, pose: np.ndarray, count: int) -> None:
        """Take the packs that were just picked up at a pose, the nearest ones, out of the scene."""
        if count:
            packs = [placed for placed in self.scene.objects if placed.kind.name == HEALTH_PACK]
            packs.sort(key=lambda placed: distance(pose, placed))
            for placed in packs[:count]:
                self.scene.remove(placed.tid)
