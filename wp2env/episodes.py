"""Running episodes: a world's stream, the task that judges it, and what lasts from one step to the next.

`Episodes` begins some of its slots and advances all of them; when a slot begins anew is its caller's business.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from world_model.controls import ACTION_DIM, PERSPECTIVE
from wp2env.loading import WorldHandle
from wp2env.options import StartRequest
from wp2env.slots import Slots
from wp2env.starts import StartBank, newest_whole_chunks
from wp2env.tasks import RewardOut, RewardSource, TaskContext, bind_task

SEED_LIMIT = 2**63  # seeds of episodes are drawn below it, the range that torch's generators take


@dataclass(frozen=True)
class EnvState:
    """All that an environment knows, from `get_state`; opaque, and good for any number of `set_state` calls."""

    made_for: tuple[Any, str]  # the world's configuration and the task's name
    world: Any
    task: Mapping[str, Any]
    slots: Slots


class Episodes:
    """``num_slots`` episodes in one world.

    Args:
        handle: the world.
        num_slots: episodes side by side, one batched forward for all.
        task: gives rewards and ends.
        bank: recorded starts, None where the world has none.
        sampling_steps: network evaluations per chunk, None for the world's own number.
        temperature: scale of the noise that chunks begin from.
    """

    def __init__(
        self,
        handle: WorldHandle,
        num_slots: int,
        task: RewardSource,
        bank: StartBank | None,
        sampling_steps: int | None,
        temperature: float,
    ) -> None:
        self.handle, self.num_slots, self.task, self.bank = handle, num_slots, task, bank
        self.sampling_steps, self.temperature = sampling_steps, temperature
        self.latency = 0.0
        self._bind()
        self._stream: Any = None
        self._resume: Any = None
        shape = tuple(self.stream.frame_shape)
        if bank is not None and bank.frames.shape[2:] != shape:
            raise ValueError(
                f"the bank of starts holds pictures {list(bank.frames.shape[2:])} and this world draws {list(shape)}; "
                "give `starts=` a bank of that size"
            )
        self.slots = Slots.empty(num_slots, (self.chunk_frames, *shape))

    @property
    def stream(self) -> Any:
        """The running world, a `world_model.rollout.WorldStream`; made when first needed, also after unpickling."""
        if self._stream is None:
            world = self.handle.get()
            self._stream = world.stream(
                self.num_slots, sampling_steps=self.sampling_steps, temperature=self.temperature
            )
            if self._resume is not None:
                self._stream.restore(self._resume)
                self._resume = None
        return self._stream

    @property
    def chunk_frames(self) -> int:
        """Video frames of one chunk."""
        return self.stream.latents_per_chunk * self.stream.frames_per_latent

    def check_ready(self) -> None:
        """Raise `ResetNeeded` unless every slot has begun."""
        if not self.slots.ready.all():
            raise ResetNeeded("the episode has not begun; call reset first")

    def begin(
        self, chosen: Sequence[int], requests: Mapping[int, StartRequest], seeds: Mapping[int, int | None]
    ) -> None:
        """Begin new episodes in the chosen slots, with a request and a seed each; seed None keeps the slot's stream."""
        state, stream = self.slots, self.stream
        begun = [self._prepare(slot, requests[slot], seeds[slot]) for slot in chosen]
        state.clips[chosen] = self._begin_stream(chosen, begun).cpu().numpy()[:, None]
        state.steps[chosen], state.ready[chosen], state.ended[chosen] = 0, True, False
        for slot, new in zip(chosen, begun, strict=True):
            state.starts[slot], state.requests[slot], state.views[slot] = new.start, new.request, new.start.perspective
            state.characters[slot] = new.request.caption.get("character")
            state.random[slot], state.seeds[slot], state.task_random[slot] = new.random, new.seed, new.task_random
        mask = np.zeros(self.num_slots, dtype=bool)
        mask[chosen] = True
        idle = np.zeros((self.num_slots, stream.latents_per_chunk, ACTION_DIM), dtype=np.float32)
        idle[..., PERSPECTIVE] = state.views[:, None]
        self.task.reset(mask, self._context(idle, state.frames, mask))

    def request_again(self, slot: int) -> StartRequest:
        """What a slot that begins anew by itself asks for: the bank, or without one what it last began from."""
        return StartRequest() if self.bank is not None else self.slots.requests[slot]

    def advance(self, rows: np.ndarray, events: Sequence[str], active: np.ndarray) -> RewardOut:
        """Generate one chunk in every slot under rows ``[B, n, 6]`` and new events ("" for none), and judge it.

        Raises:
            ValueError: when the task answers with a wrong shape; the world has moved on then.
        """
        state, previous = self.slots, self.slots.frames
        views = rows[:, -1, PERSPECTIVE].astype(np.int64)
        self._announce(events, views)
        began = time.perf_counter()
        state.clips = self.stream.step(rows).cpu().numpy().copy()
        self.latency = time.perf_counter() - began
        state.views[:] = views
        state.steps += 1
        out = self.task(self._context(rows, previous, active))
        said = {"reward": out.reward, "terminated": out.terminated, **out.terms}
        if out.confidence is not None:
            said["confidence"] = out.confidence
        for name, value in said.items():
            if np.shape(value) != (self.num_slots,) or not np.isfinite(value).all():
                raise ValueError(
                    f"the task {self.task.name} gave {value!r:.80} as {name}; give {self.num_slots} finite numbers"
                )
        return out

    def set_caption(self, fields: Mapping[str, str], chosen: Sequence[int]) -> None:
        """Exchange caption fields in the chosen slots."""
        self.stream.set_caption(list(chosen), **fields)
        if "character" in fields:
            for slot in chosen:
                self.slots.characters[slot] = fields["character"]

    def get_state(self) -> EnvState:
        """The whole state, copied."""
        return EnvState(self._kind, self.stream.snapshot(), copy.deepcopy(self.task.state_dict()), self.slots.copy())

    def set_state(self, state: EnvState) -> None:
        """Go back to a state.

        Raises:
            ValueError: for a state of another kind of environment, or something that is no state.
        """
        if not isinstance(state, EnvState):
            raise ValueError(f"the state is a {type(state).__name__}; give what get_state returned")
        if state.slots.clips.shape != self.slots.clips.shape:
            raise ValueError(
                f"the state is of {list(state.slots.clips.shape)} (slots, frames, height, width, 3), the environment "
                f"of {list(self.slots.clips.shape)}; set it in one that was made with the same arguments"
            )
        if state.made_for != self._kind:
            worlds, tasks = zip(state.made_for, self._kind, strict=True)
            raise ValueError(
                f"the state is of the world {worlds[0].name!r} and the task {tasks[0]!r}, the environment has "
                f"{worlds[1].name!r} and {tasks[1]!r}; set it in one that was made with the same arguments"
            )
        self.stream.restore(state.world)
        self.task.load_state_dict(copy.deepcopy(state.task))
        self.slots = state.slots.copy()

    def close(self) -> None:
        """Let go of the running world; the next reset makes it again."""
        self._stream = self._resume = None
        self.slots.ready[:] = False

    def _bind(self) -> None:
        """Hand the task the world that it will judge."""
        bind_task(self.task, self.handle.get())

    def _begin_stream(self, chosen: Sequence[int], begun: Sequence[NewEpisode]) -> Any:
        """Let the stream begin: the slots' newest frames, a uint8 tensor ``[len(chosen), H, W, 3]``."""
        return self.stream.reset(
            list(chosen),
            [slot.start.frames for slot in begun],
            [slot.caption for slot in begun],
            [slot.world_seed for slot in begun],
            actions=[slot.start.rows(self.stream.frames_per_latent) for slot in begun],
        )

    def _announce(self, events: Sequence[str], views: np.ndarray) -> None:
        """Tell the stream of new events, and of the character's caption where the view ``[B]`` changes."""
        for slot, view in enumerate(views):
            change = {"event": events[slot]} if events[slot] else {}
            if view != self.slots.views[slot]:
                change["character"] = self.slots.character(slot, view)
            if change:
                self.stream.set_caption([slot], **change)

    @property
    def _kind(self) -> tuple[Any, str]:
        return self.stream.config, self.task.name

    def _prepare(self, slot: int, request: StartRequest, new_seed: int | None) -> NewEpisode:
        random, seed = copy.deepcopy(self.slots.random[slot]), self.slots.seeds[slot]
        if new_seed is not None or random is None:
            random, seed = seeding.np_random(new_seed)
        # All draws at every reset, whatever was asked for: a start of the user's does not shift the episodes after it.
        drawn = int(random.integers(1 if self.bank is None else len(self.bank)))
        world_seed, task_seed = random.integers(SEED_LIMIT, size=2).tolist()
        start = request.start(self.bank, drawn)
        if start.frames is not None:
            start = replace(start, frames=newest_whole_chunks(start.frames, self.chunk_frames))
        return NewEpisode(request, start, random, seed, world_seed, np.random.default_rng(task_seed))

    def _context(self, rows: np.ndarray, previous: np.ndarray, active: np.ndarray) -> TaskContext:
        state = self.slots
        frames, previous, steps = state.clips.view(), previous.view(), state.steps.copy()
        frames.flags.writeable = previous.flags.writeable = False
        return TaskContext(
            frames=frames,
            previous=previous,
            actions=rows,
            captions=tuple(self.stream.captions),
            steps=steps,
            active=active,
            random=tuple(state.task_random),
            latents=self.stream.latents,
        )

    def __getstate__(self) -> dict[str, Any]:
        resume = self._resume if self._stream is None else self._stream.snapshot()
        return {**self.__dict__, "_stream": None, "_resume": resume}


@dataclass(frozen=True)
class NewEpisode:
    """What one slot begins with."""

    request: StartRequest
    start: Any
    random: np.random.Generator
    seed: int
    world_seed: int
    task_random: np.random.Generator

    @property
    def caption(self) -> Any:
        """The caption in force at first; a character that the user asked for holds in both perspectives."""
        return self.start.caption if "character" in self.request.caption else self.start.caption_in_view()
