"""The true game as the stream of an environment: what `world_model.rollout.WorldStream` is for a generated world."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from world_model.config import VideoConfig
from world_model.controls import NOTHING, StructuredCaption
from world_model.data.doom.game import Step
from world_model.data.doom.tasks import TASKS
from wp2env.game_player import GameEpisode, GameLevels, GamePlayer
from wp2env.starts import Start, StartBank

T = TypeVar("T")


@dataclass(frozen=True)
class GameConfig:
    """What tells one true game from another: its pictures, and a checksum of the places that it can begin from."""

    video: VideoConfig
    places: str
    name: str = "the true game"


@dataclass(frozen=True)
class TrueGame:
    """The true game in the levels of a bank of starts; takes the place of a world.

    Raises:
        ValueError: for a bank that does not say how the game comes to its starts, or whose pictures are not square.
    """

    bank: StartBank
    config: GameConfig = field(init=False)

    def __post_init__(self) -> None:
        bank = self.bank
        if bank.origins is None or bank.actions is None:
            raise ValueError(
                "these starts do not say how the true game comes to them; record some with `wp2 starts doom`, "
                "and give `starts=` that file"
            )
        height, width = bank.frames.shape[2:4]
        if height != width:
            raise ValueError(f"the pictures of the starts are {width}x{height}; the true game draws squares")
        places = hashlib.sha256(json.dumps(list(bank.origins), sort_keys=True).encode() + bank.actions.tobytes())
        object.__setattr__(self, "config", GameConfig(VideoConfig(height, width), places.hexdigest()))

    def stream(self, num_slots: int, sampling_steps: None = None, temperature: float = 1.0) -> GameStream:
        """``num_slots`` games; nothing is generated, so the other two have no meaning."""
        return GameStream(self, num_slots)


@dataclass(frozen=True)
class GameSnapshot:
    """The exact state of a stream: its episodes, and what their newest steps showed."""

    episodes: tuple[GameEpisode | None, ...]
    captions: tuple[StructuredCaption | None, ...]


class GameStream:
    """``num_slots`` true games, each with an engine of its own, which is opened when it is first needed.

    One step is one frame, 4 of the engine's tics. The game is deterministic, so no slot depends on the others.
    `close` ends the engines, and so do dropping the stream and the end of Python; no process and no file stays.
    """

    latents: None = None
    latents_per_chunk = frames_per_latent = 1

    def __init__(self, game: TrueGame, num_slots: int) -> None:
        self.config, self.num_slots = game.config, num_slots
        self.frame_shape = (self.config.video.height, self.config.video.width, 3)
        self.captions: list[StructuredCaption | None] = [None] * num_slots
        self.ended = np.zeros(num_slots, dtype=bool)  # the game itself is over
        self._rewards = {task.name: np.zeros(num_slots) for task in TASKS}
        self._ends = {task.name: np.zeros(num_slots, dtype=bool) for task in TASKS}
        self._episodes: list[GameEpisode | None] = [None] * num_slots
        self._threads: ThreadPoolExecutor | None = None
        self._levels = GameLevels([origin["level_seed"] for origin in game.bank.origins])
        self._players = [GamePlayer(self._levels, self.config.video.height) for _ in range(num_slots)]

    @property
    def truth(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Reward float64 ``[B]`` and end bool ``[B]`` of the newest step by task; 0 and False after a reset."""
        return {name: (self._rewards[name].copy(), self._ends[name].copy()) for name in self._rewards}

    def reset(self, slots: Sequence[int], starts: Sequence[Start], seeds: Sequence[int]) -> Tensor:
        """Begin the slots anew from starts of the bank: their newest frames, uint8 ``[len(slots), H, W, 3]``.

        A start's ``perspective`` is the view of all of its frames; a seed decides what events leave to chance.

        Raises:
            RuntimeError: when an engine dies; nothing has changed then.
        """
        begun = {slot: GameEpisode(start, seed) for slot, start, seed in zip(slots, starts, seeds, strict=True)}
        steps = self._together(lambda slot: self._players[slot].begin(begun[slot]), slots)
        for slot, step in zip(slots, steps, strict=True):
            self._take(slot, begun[slot], step)
            for name in self._rewards:
                self._rewards[name][slot] = self._ends[name][slot] = 0
        return torch.from_numpy(np.stack([step.frame for step in steps]))

    def step(self, actions: np.ndarray) -> Tensor:
        """Play one frame in every slot under ``actions [B, 1, 6]``: uint8 ``[B, 1, H, W, 3]``.

        Raises:
            RuntimeError: when an engine dies; every slot is where it was then.
        """
        played = self._together(
            lambda slot: self._players[slot].play(self._episodes[slot], actions[slot, 0]), range(self.num_slots)
        )
        for slot, (episode, step) in enumerate(played):
            self._take(slot, episode, step)
        return torch.from_numpy(np.stack([step.frame for _, step in played])[:, None])

    def announce(self, events: Mapping[int, str]) -> None:
        """Let an event begin with the next step in the given slots, ``NOTHING`` for none.

        Raises:
            ValueError: for an event that the game does not have or that cannot happen in the slot now; nothing has
                changed then.
            RuntimeError: when an engine dies; nothing has changed then.
        """
        for slot, text in events.items():
            if text != NOTHING:
                self._players[slot].build_event(self._episodes[slot], text)
            elif self.captions[slot].event != NOTHING and not self._episodes[slot].event:
                raise ValueError(
                    f"in the true game the event {self.captions[slot].event!r} ends by itself; go on without a word"
                )
        for slot, text in events.items():
            self._episodes[slot] = self._episodes[slot].announced("" if text == NOTHING else text)
            self.captions[slot] = self.captions[slot].replace(event=text)

    def snapshot(self) -> GameSnapshot:
        """The exact present state; the same actions after `restore` give the same frames."""
        return GameSnapshot(tuple(self._episodes), tuple(self.captions))

    def restore(self, snapshot: GameSnapshot) -> None:
        """Return to a snapshot of this stream or of another one of the same game and as many slots; the engines
        follow with the next step, by playing all actions since the reset again."""
        self._episodes, self.captions = list(snapshot.episodes), list(snapshot.captions)

    def close(self) -> None:
        """End the engines and remove the level file; when they are needed again, they come back."""
        for player in self._players:
            player.close()
        self._levels.close()
        if self._threads is not None:
            self._threads.shutdown()
        self._threads = None

    def _together(self, act: Callable[[int], T], slots: Sequence[int]) -> list[T]:
        """What ``act`` gives for each slot; the slots wait for their engines at the same time."""
        if len(slots) == 1:
            return [act(slots[0])]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.num_slots, thread_name_prefix="true-game")
        futures = [self._threads.submit(act, slot) for slot in slots]
        wait(futures)  # also when one has failed: nobody may go on while an engine is still at work
        return [future.result() for future in futures]

    def _take(self, slot: int, episode: GameEpisode, step: Step) -> None:
        self._episodes[slot], self.captions[slot], self.ended[slot] = episode, step.caption, step.ended
        for name in self._rewards:
            self._rewards[name][slot], self._ends[name][slot] = step.rewards[name], step.terminated[name]
