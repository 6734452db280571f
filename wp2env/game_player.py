"""One slot of the true game: an engine, and an episode that says all that led to its present state.

The engine is deterministic: the same start, actions and events lead to the same state. So an episode is remembered as
what was done in it, and an engine that is somewhere else, new, or dead comes to its state by doing it again.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from world_model.controls import PERSPECTIVE
from world_model.data.doom import engine
from world_model.data.doom.events import BUILDERS, Event
from world_model.data.doom.game import DoomGame, Step
from world_model.data.doom.levels import random_level, write_levels
from wp2env.starts import Start

EVENT_TRIES = 200  # of a kind of event, whose object and place are left to chance, to find the one of a caption


@dataclass(frozen=True)
class GameEpisode:
    """All that leads to a state of the game: where it began, and the event ("" for none) and action row ``[6]`` of
    every step since. ``seed`` decides what events leave to chance; ``event`` begins with the next step."""

    start: Start
    seed: int
    moves: tuple[tuple[str, np.ndarray], ...] = ()
    event: str = ""

    def then(self, row: np.ndarray) -> GameEpisode:
        """The episode one step later."""
        return replace(self, moves=(*self.moves, (self.event, row)), event="")

    def announced(self, event: str) -> GameEpisode:
        """The episode with another event to begin with the next step, "" for none."""
        return replace(self, event=event)


class GameLevels:
    """The levels of a bank of starts, and the file that engines load them from, written when first needed."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = list(dict.fromkeys(seeds))
        self._folder: tempfile.TemporaryDirectory | None = None
        self._writing = threading.Lock()

    def open(self, size: int) -> DoomGame:
        """A new engine that has them all; any number of threads may ask."""
        with self._writing:
            if self._folder is None:
                self._write()
        return DoomGame(self._levels, size, self._file)

    def close(self) -> None:
        """Remove the file; it can be written again."""
        if self._folder is not None:
            self._folder.cleanup()
        self._folder = None

    def _write(self) -> None:
        self._levels = [random_level(seed) for seed in self.seeds]
        folder = tempfile.TemporaryDirectory(prefix="true-game-", ignore_cleanup_errors=True)
        self._file = Path(folder.name) / "levels.wad"
        write_levels(self._file, self._levels)
        self._folder = folder


class GamePlayer:
    """An engine that comes to any episode's state; opened when first needed, and again after it died.

    Every method raises RuntimeError when the engine dies in it; nothing is lost then, the next call opens another one.
    """

    def __init__(self, levels: GameLevels, size: int) -> None:
        self._levels, self._size = levels, size
        self._game: DoomGame | None = None
        self._now: GameEpisode | None = None  # whose state the engine is in

    def begin(self, episode: GameEpisode) -> Step:
        """Come to the state of an episode from its start on."""
        return self._guarded(self._replay, episode)

    def play(self, episode: GameEpisode, row: np.ndarray) -> tuple[GameEpisode, Step]:
        """Play one more action row ``[6]``, from the episode's state."""
        return self._guarded(self._play, episode, row)

    def build_event(self, episode: GameEpisode, text: str) -> Event:
        """The event with that caption, as it would happen in the episode's next step.

        Raises:
            ValueError: when the engine has no such event, or it cannot happen here and now.
        """
        return self._guarded(self._build_event, episode, text)

    def close(self) -> None:
        """End the engine; the next call opens another one."""
        game, self._game, self._now = self._game, None, None
        if game is not None:
            game.close()

    def _guarded(self, act, *arguments):
        try:
            return act(*arguments)
        except engine.DEAD as error:
            self.close()
            raise RuntimeError(
                f"the engine of the true game has died ({' '.join(str(error).split())}); "
                "call again, and another one goes on from the same state"
            ) from error

    def _come_to(self, episode: GameEpisode) -> DoomGame:
        """The game in the episode's state. Whether an event is to begin next makes no difference to it."""
        if self._now is None or self._now.moves is not episode.moves or self._now.start is not episode.start:
            self._replay(episode)
        return self._game

    def _replay(self, episode: GameEpisode) -> Step:
        self._now = None
        if self._game is None:
            self._game = self._levels.open(self._size)
        game, start = self._game, episode.start
        origin = start.origin
        level = self._levels.seeds.index(origin["level_seed"])
        step = game.reset(level, engine.Start(**origin["start"]), engine.Look(**origin["look"]), start.perspective)
        for row in start.actions[1:]:
            row = row.copy()
            row[PERSPECTIVE] = start.perspective  # which may be another one than the recording's
            step = game.step(row)
        for count, (event, row) in enumerate(episode.moves):
            step = self._move(replace(episode, moves=episode.moves[:count], event=event), row)
        self._now = episode
        return step

    def _play(self, episode: GameEpisode, row: np.ndarray) -> tuple[GameEpisode, Step]:
        self._come_to(episode)
        step = self._move(episode, row)
        self._now = episode.then(row)
        return self._now, step

    def _move(self, episode: GameEpisode, row: np.ndarray) -> Step:
        """One step of a game that is in the episode's state."""
        if episode.event:
            self._game.begin(self._find_event(episode, episode.event))
        return self._game.step(row)

    def _build_event(self, episode: GameEpisode, text: str) -> Event:
        running = self._come_to(episode).event
        if running is not None:
            raise ValueError(f"in the true game the event {running.caption!r} is still going on; wait for its end")
        return self._find_event(episode, text)

    def _find_event(self, episode: GameEpisode, text: str) -> Event:
        """The event of that caption; the same one for the same episode, so that it can be played again."""
        rng = np.random.default_rng([episode.seed, len(episode.moves)])
        for build in BUILDERS.values():
            for _ in range(EVENT_TRIES):
                event = build(self._game, rng)
                if event is not None and event.caption == text:
                    return event
        raise ValueError(
            f"the event {text!r:.80} cannot happen here in the true game; it knows those of its own recordings only, "
            "such as 'the lights go out'"
        )
