"""A large student's own rollouts, as `training.stable_forcing` needs them: the twin of `self_rollout`.

The walk is the same; a chunk sees the published memory in its cache, and every evaluation but the last ends in fresh
noise, as in `large.rollout`. The first chunk, which the start picture begins, is always a true one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from world_model.large.companions import open_codec
from world_model.large.compressor import TEMPORAL_STRIDE
from world_model.large.conditioning import StreamingCodec, chunk_frames, small_video
from world_model.large.context import History, MemoryCache, extend_cache
from world_model.large.denoise import read
from world_model.large.trainable import Trainable
from world_model.large.transformer import TIMESTEPS
from world_model.sampling import Evaluation, renoised
from world_model.training.self_rollout import Rollout, Student
from world_model.transformer import KeyValue
from world_model.world import World


@dataclass
class LargePast:
    """All that lasts between two chunks, for ``B`` rows; conditioning is that of the whole window."""

    condition: Tensor  # [B, T, K, h, w]
    small_condition: Tensor  # [B, T / 2, K, h / 4, w / 4]
    text: Tensor  # [B, L, X], the caption in force
    history: History | None = None
    caches: dict[str, MemoryCache] = field(default_factory=dict)  # of each expert
    decoder: list | None = None
    encoder: list | None = None  # of the small video

    @property
    def count(self) -> int:
        """Latents so far."""
        return 0 if self.history is None else self.history.latents.shape[1]


class LargeView(NamedTuple):
    """What a chunk sees of a past, the same for all of its network evaluations."""

    condition: Tensor  # [B, n, K, h, w]
    first: int  # latent
    text: Tensor
    caches: dict[str, MemoryCache]
    contexts: dict[str, list[KeyValue]]  # with room for the chunk, of the experts that were asked already


class LargeChunks:
    """What `chunk.ChunkGenerator` is to a small world; ``codec`` is the world's own."""

    def __init__(self, world: Trainable) -> None:
        self.world = world
        self._codec: StreamingCodec | None = None

    def codec(self, device: torch.device) -> StreamingCodec:
        """The codec, which the first call opens."""
        if self._codec is None:
            self._codec = open_codec(self.world.path / "vae", device)
        return self._codec

    def view(self, past: LargePast, count: int) -> LargeView:
        """What the next ``count`` latents see."""
        condition = past.condition[:, past.count : past.count + count]
        return LargeView(condition, past.count, past.text, dict(past.caches), {})

    def predict(self, view: LargeView, x: Tensor, actions: Tensor, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """One network evaluation of ``x [B, n, C, h, w]``: displacement and endpoint, see `sampling`."""
        name, grid = self.world.expert_at(evaluation.last), self.world.config.token_grid
        expert, conditioned = self.world.experts[name], torch.cat([x, view.condition], dim=2)
        if name in view.caches and name not in view.contexts:
            view.contexts[name] = view.caches[name].context(x.shape[1] * grid[0] * grid[1])
        timestep, context = TIMESTEPS * evaluation.level, view.contexts.get(name)
        hidden, time = read(expert, conditioned, timestep, view.first, actions, view.text, context)
        return evaluation.predict(expert.transformer, expert.transformer.head_input(hidden, time), grid)

    def commit(self, past: LargePast, latents: Tensor, frames: Tensor, actions: Tensor) -> None:
        """Make a finished chunk ``[B, n, C, h, w]`` with its frames ``[B, F, 3, H, W]`` part of the past."""
        small, past.encoder = self.codec(latents.device).encode(small_video(frames), past.encoder)
        where = slice(past.count, past.count + latents.shape[1])
        few = slice(where.start // TEMPORAL_STRIDE, where.start // TEMPORAL_STRIDE + small.shape[1])
        new = History(
            torch.cat([latents, past.condition[:, where]], dim=2),
            torch.cat([small, past.small_condition[:, few]], dim=2),
            actions,
        )
        past.history = new if past.history is None else past.history.followed_by(new)
        memory = self.world.config.memory
        sizes = memory.sink_latents, memory.adjacent_latents
        past.caches = {
            name: extend_cache(expert, past.caches.get(name), past.history, past.text, *sizes)
            for name, expert in self.world.experts.items()
        }


class LargeStudent(Student):
    """Rolls a large world out over the windows of a batch, which bring ``fresh [E - 1, B, T, C, h, w]``, the noise
    that a chunk's evaluations end in."""

    chunks: LargeChunks

    def __init__(self, world: Trainable) -> None:
        self.world = world
        self.chunks = LargeChunks(world)
        self.n, self.r = world.config.chunk_latents, world.config.codec.temporal_factor

    def draw(self, shape: torch.Size, evaluations: int, generator: torch.Generator) -> dict[str, Tensor]:
        fresh = torch.randn(max(0, evaluations - 1), *shape, generator=generator)
        return super().draw(shape, evaluations, generator) | {"fresh": fresh}

    def decode(self, latents: Tensor) -> Tensor:
        return self.chunks.codec(latents.device).decode(latents)[0]

    def coarse(self, rollout: Rollout) -> Tensor:
        """Latents of the small video, each at both latents of its frame: ``[B, T, C, h / 4, w / 4]``."""
        codec, state, found = self.chunks.codec(rollout.latents.device), None, []
        for first in range(0, rollout.latents.shape[1], self.n):
            frames = self._own_frames(rollout.frames[:, first * self.r : (first + self.n) * self.r], first)
            with torch.no_grad():
                small, state = codec.encode(small_video(frames), state)
            found.append(small)
        return torch.cat(found, dim=1).repeat_interleave(TEMPORAL_STRIDE, dim=1)

    def _onward(
        self, evaluation: Evaluation, x: Tensor, predicted: tuple[Tensor, Tensor], fresh: Tensor | None
    ) -> Tensor:
        return renoised(evaluation, x, *predicted, lambda: fresh)

    def _fresh(self, batch: dict[str, Tensor], index: int, where: slice) -> Tensor | None:
        return batch["fresh"][index, :, where] if index < len(batch["fresh"]) else None

    def _begin(self, batch: dict[str, Tensor]) -> LargePast:
        small = batch["coarse_condition"][:, ::TEMPORAL_STRIDE]
        return LargePast(batch["condition"], small, self._caption(batch, 0))

    def _set_caption(self, past: LargePast, batch: dict[str, Tensor], latent: int) -> None:
        past.text = self._caption(batch, latent)

    def _caption(self, batch: dict[str, Tensor], latent: int) -> Tensor:
        number = (batch["codes"][..., 0] * batch["active"][:, latent]).sum(1)  # one of a window's is in force
        return self.world.text(number[:, None])

    def _true_chunks(self, latents: Tensor) -> Iterator[tuple[int, Tensor]]:
        for first in range(0, latents.shape[1], self.n):
            yield first, latents[:, first : first + self.n]

    @torch.no_grad()
    def _go_on(self, past: LargePast, batch: dict[str, Tensor], first: int, latents: Tensor) -> Tensor:
        frames, past.decoder = self.chunks.codec(latents.device).decode(latents, past.decoder)
        missing = latents.shape[1] * self.r - frames.shape[1]  # the first picture stands for all frames of its latent
        frames = torch.cat([frames[:, :1].expand(-1, missing, -1, -1, -1), frames], dim=1)
        self._commit(past, batch, first, latents, frames)
        return frames

    @torch.no_grad()
    def _commit(self, past: LargePast, batch: dict[str, Tensor], first: int, latents: Tensor, frames: Tensor) -> None:
        super()._commit(past, batch, first, latents, self._own_frames(frames, first))

    def _own_frames(self, frames: Tensor, first: int) -> Tensor:
        """A chunk's frames without those that its first picture stood for once more."""
        return frames[:, -chunk_frames(self.n, first=not first) :]


def student_of(world: World | Trainable) -> Student:
    """What rolls out a world of either kind."""
    return LargeStudent(world) if isinstance(world, Trainable) else Student(world)
