"""Chunk after chunk through the two experts, each with its own memory.

rollout = LargeRollout(experts, condition, small_condition)
latents = few_step_chunk(rollout, noise, rows, text, fresh)      # or solved_chunk
... decode the latents, shrink every second frame and encode it ...
rollout.commit(latents, small_latents, rows, text)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from world_model.large.conditioning import MASK_CHANNELS
from world_model.large.context import History, Memory, MemoryCache, extend_cache, remember
from world_model.large.denoise import evaluate
from world_model.large.expert import Expert
from world_model.large.few_step import calls_of, clean_estimate, grid_levels, next_input
from world_model.large.transformer import TIMESTEPS
from world_model.solvers import DPMSolver, UniPC
from world_model.transformer import KeyValue


class Guidance(NamedTuple):
    """Classifier-free guidance: a negative caption ``[B, L, X]`` and a scale for each expert."""

    negative: Tensor
    scales: Mapping[str, float]


class RolloutState(NamedTuple):
    """All that a rollout remembers; nothing in it is ever changed in place."""

    condition: Tensor
    small_condition: Tensor
    history: History | None
    caches: Mapping[str, MemoryCache]
    memories: Mapping[str, Memory]


class LargeRollout:
    """``B`` rollouts that advance together.

    ``condition [B, T, 20, h, w]`` and ``small_condition [B, T / 2, 20, h / 4, w / 4]`` are the picture mask and the
    start picture's latents for all latents to come (see `condition_volume`). With ``guidance`` every evaluation is
    doubled along the batch; memory, conditioning and actions are the same in both halves. A ``bidirectional`` rollout
    keeps no cache: its memory is part of every evaluation and sees the chunk. ``sink`` and ``adjacent`` are latents
    kept at full size, the configuration's unless given.
    """

    def __init__(
        self,
        experts: Mapping[str, Expert],
        condition: Tensor,
        small_condition: Tensor,
        bidirectional: bool = False,
        guidance: Guidance | None = None,
        sink: int | None = None,
        adjacent: int | None = None,
    ) -> None:
        self.experts = experts
        self.condition, self.small_condition = condition, small_condition
        self.bidirectional, self.guidance = bidirectional, guidance
        self.config = next(iter(experts.values())).config
        memory = self.config.world.memory
        self.sink = memory.sink_latents if sink is None else sink
        self.adjacent = memory.adjacent_latents if adjacent is None else adjacent
        self.history: History | None = None
        self.caches: dict[str, MemoryCache] = {}
        self.memories: dict[str, Memory] = {}
        self._contexts: dict[str, list[KeyValue]] = {}  # with room for the present chunk

    @property
    def count(self) -> int:
        """Latents so far."""
        return 0 if self.history is None else self.history.latents.shape[1]

    @property
    def state(self) -> RolloutState:
        """What `resume` goes back to, in this rollout or in another one through the same experts."""
        return RolloutState(self.condition, self.small_condition, self.history, dict(self.caches), dict(self.memories))

    def resume(self, state: RolloutState) -> None:
        """Go on from a state."""
        self.condition, self.small_condition, self.history = state[:3]
        self.caches, self.memories = dict(state.caches), dict(state.memories)
        self._contexts = {}

    def extend(self, condition: Tensor, small_condition: Tensor) -> None:
        """Add conditioning for latents to come, in the shapes of those given at the start."""
        self.condition = torch.cat([self.condition, condition], dim=1)
        self.small_condition = torch.cat([self.small_condition, small_condition], dim=1)

    def expert_at(self, timestep: float) -> str:
        """The expert of a noise level, given as 1000 times it."""
        return self.config.expert_at(timestep / TIMESTEPS)

    @property
    def clean_picture(self) -> Tensor | None:
        """The start picture's latent ``[B, 1, C, h, w]`` if it takes the place of the present chunk's first one."""
        if self.count or not self.config.clean_picture or not bool(self.condition[:, 0, :MASK_CHANNELS].all()):
            return None
        return self.condition[:, :1, MASK_CHANNELS:]

    @torch.no_grad()
    def evaluate(
        self, name: str, x: Tensor, timestep: float | Tensor, rows: Tensor, text: Tensor, call: int | None = None
    ) -> tuple[Tensor, ...]:
        """Expert ``name`` on the present chunk ``x [B, n, 16, h, w]``, guided if so wished; see `denoise.evaluate`."""
        conditioned = torch.cat([x, self.condition[:, self.count : self.count + x.shape[1]]], dim=2)
        conditioned, rows, text = self._doubled(conditioned), self._doubled(rows), self._captions(text)
        if name in self.caches and name not in self._contexts:
            patch = self.experts[name].transformer.patch
            room = x.shape[1] * (x.shape[-2] // patch) * (x.shape[-1] // patch)
            self._contexts[name] = self.caches[name].context(room)
        past = {"context": self._contexts.get(name), "memory": self.memories.get(name)}
        found = evaluate(self.experts[name], conditioned, timestep, self.count, rows, text, call=call, **past)
        if self.guidance is None:
            return found
        scale = self.guidance.scales[name]
        with_caption, without = zip(*(part.chunk(2) for part in found), strict=True)
        return tuple(b + scale * (a - b) for a, b in zip(with_caption, without, strict=True))

    @torch.no_grad()
    def commit(self, latents: Tensor, small_latents: Tensor, rows: Tensor, text: Tensor) -> None:
        """Make a finished chunk part of the past: latents ``[B, n, 16, h, w]``, those of its small video ``[B, n / 2,
        16, h / 4, w / 4]``, its actions and the caption that it was made with."""
        small_count = 0 if self.history is None else self.history.small.shape[1]
        full = torch.cat([latents, self.condition[:, self.count : self.count + latents.shape[1]]], dim=2)
        own = self.small_condition[:, small_count : small_count + small_latents.shape[1]]
        new = History(full, torch.cat([small_latents, own], dim=2), rows)
        self.history = new if self.history is None else self.history.followed_by(new)
        sizes = self.sink, self.adjacent
        seen = History(*(self._doubled(part) for part in vars(self.history).values()))
        for name, expert in self.experts.items():
            if self.bidirectional:
                self.memories[name] = remember(expert, seen, *sizes)
            else:
                self.caches[name] = extend_cache(expert, self.caches.get(name), seen, self._captions(text), *sizes)
        self._contexts = {}

    def _doubled(self, x: Tensor) -> Tensor:
        return x if self.guidance is None else torch.cat([x, x])

    def _captions(self, text: Tensor) -> Tensor:
        if self.guidance is None:
            return text
        longest = max(text.shape[1], self.guidance.negative.shape[1])
        both = (functional.pad(x, (0, 0, 0, longest - x.shape[1])) for x in (text, self.guidance.negative))
        return torch.cat(list(both))


def few_step_chunk(
    rollout: LargeRollout, noise: Tensor, rows: Tensor, text: Tensor, fresh: Callable[[], Tensor]
) -> Tensor:
    """A chunk of a distilled model, ``[B, n, 16, h, w]`` like its ``noise``; ``fresh`` gives new such noise."""
    x, picture, calls = noise, rollout.clean_picture, calls_of(rollout.config)
    for call in calls:
        levels = _timesteps(float(grid_levels()[call.start] * TIMESTEPS), picture, x)
        displacement, endpoint = rollout.evaluate(call.expert, _begun_by(picture, x), levels, rows, text, call.local)
        x = clean_estimate(x, displacement, endpoint, call)
        if call is not calls[-1]:
            x = next_input(x, fresh(), call)
    return _begun_by(picture, x)


def solved_chunk(rollout: LargeRollout, noise: Tensor, rows: Tensor, text: Tensor, solver: UniPC | DPMSolver) -> Tensor:
    """A chunk ``[B, n, 16, h, w]`` by a fresh ``solver``, for the models that take many steps."""
    x, picture = noise, rollout.clean_picture
    for timestep in solver.timesteps.tolist():
        levels = _timesteps(timestep, picture, x)
        (velocity,) = rollout.evaluate(rollout.expert_at(timestep), _begun_by(picture, x), levels, rows, text)
        x = solver.step(x, velocity)
    return _begun_by(picture, x)


def _timesteps(timestep: float, picture: Tensor | None, x: Tensor) -> Tensor:
    """One timestep for each latent of a chunk; the start picture's is 0."""
    levels = torch.full((x.shape[1],), float(timestep), dtype=torch.float64)
    if picture is not None:
        levels[0] = 0
    return levels


def _begun_by(picture: Tensor | None, x: Tensor) -> Tensor:
    return x if picture is None else torch.cat([picture, x[:, 1:]], dim=1)
