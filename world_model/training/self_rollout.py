"""The student's own rollouts, as `training.stable_forcing` needs them: rolled out without gradients, then replayed.

A rollout begins with true latents of recordings and goes on under their recorded controls. It is the stream that an
environment runs (`chunk.ChunkGenerator`), so what training sees is what users get.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from world_model.chunk import ChunkGenerator, Past
from world_model.controls import YAW
from world_model.memory import coarse_view
from world_model.sampling import Evaluation, evaluations_of
from world_model.training.objective import encode_captions
from world_model.world import World

TURN = 10.0  # degrees


class Moment(NamedTuple):
    """Where a chunk was when one of its evaluations began."""

    x: Tensor  # [B, n, C, h, w]
    index: int  # which evaluation


@dataclass
class Rollout:
    """``S`` true latents and ``M`` chunks of ``n`` generated ones, ``T = S + M n`` in all."""

    latents: Tensor  # [B, T, C, h, w]
    frames: Tensor  # [B, T * r, 3, H, W] in [-1, 1]; the first latent's picture r times
    moments: list[Moment]  # one for each chunk, at a random evaluation
    start: int  # S
    evaluations: int | None = None  # of each chunk; None: the world's own number


class Student:
    """Rolls a world out over the windows of a batch: actions ``[B, T, 6]``, caption ``codes`` and their ``active``."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chunks = ChunkGenerator(world)
        self.n = world.config.chunk_latents
        self.r = world.config.codec.temporal_factor

    def draw(self, shape: torch.Size, evaluations: int, generator: torch.Generator) -> dict[str, Tensor]:
        """The noise of a rollout whose window has latents of this shape, ``[B, T, C, h, w]``, as `roll_out` wants it
        in its batch; a chunk has so many evaluations."""
        return {"noise": torch.randn(shape, generator=generator)}

    def decode(self, latents: Tensor) -> Tensor:
        """The frames of a whole window's latents, the first latent being one frame."""
        return self.world.codec.decode(latents)[0]

    @torch.no_grad()
    def roll_out(
        self,
        batch: dict[str, Tensor],
        start: int,
        exits: list[int],
        evaluations: int | None = None,
        truncated: bool = False,
    ) -> Rollout:
        """Stage 1: generate a chunk for each entry of ``exits``, which is the evaluation that its moment is of.

        The noise is that of `draw`, in the batch. With ``truncated`` a chunk is what its evaluation of that
        moment takes for clean, as in Self Forcing; else it always runs through all evaluations.
        """
        past = self._begin(batch)
        steps = evaluations_of(self.world, evaluations)
        latents, frames, moments = [], [], []
        for first, chunk in self._true_chunks(batch["latents"][:, :start]):
            latents.append(chunk)
            frames.append(self._go_on(past, batch, first, chunk))
        for number, leave in enumerate(exits):
            first = start + number * self.n
            where = slice(first, first + self.n)
            x, actions = batch["noise"][:, where], batch["actions"][:, where]
            self._set_caption(past, batch, first)
            view = self.chunks.view(past, self.n)
            for index, evaluation in enumerate(steps):
                predicted = self.chunks.predict(view, x, actions, evaluation)
                if index == leave:
                    moments.append(Moment(x, index))
                    if truncated:
                        x = evaluation.clean(x, *predicted)
                        break
                x = self._onward(evaluation, x, predicted, self._fresh(batch, index, where))
            latents.append(x)
            frames.append(self._go_on(past, batch, first, x))
        return Rollout(torch.cat(latents, 1), torch.cat(frames, 1), moments, start, evaluations)

    def replay(self, batch: dict[str, Tensor], rollout: Rollout) -> Iterator[tuple[slice, Tensor]]:
        """Stage 3: for each chunk where it is and, with gradients, its clean prediction ``[B, n, C, h, w]`` at its
        moment.

        The memory is the rollout's own, built anew without gradients, so only the graph of the present chunk is alive.
        """
        past = self._begin(batch)
        for first, chunk in self._true_chunks(rollout.latents[:, : rollout.start]):
            self._remember(past, batch, rollout, first, chunk)
        for number, moment in enumerate(rollout.moments):
            first = rollout.start + number * self.n
            where = slice(first, first + self.n)
            self._set_caption(past, batch, first)
            evaluation = evaluations_of(self.world, rollout.evaluations)[moment.index]  # anew: each graph is freed
            view = self.chunks.view(past, self.n)
            predicted = self.chunks.predict(view, moment.x, batch["actions"][:, where], evaluation)
            yield where, evaluation.clean(moment.x, *predicted)
            self._remember(past, batch, rollout, first, rollout.latents[:, where])

    @torch.no_grad()
    def response(self, batch: dict[str, Tensor], start: int) -> Tensor:
        """How far apart a turn to the left and one to the right lead: the mean absolute difference of the first
        generated chunk's first clean estimates, in standard deviations of a latent."""
        past = self._begin(batch)
        for first, chunk in self._true_chunks(batch["latents"][:, :start]):
            self._go_on(past, batch, first, chunk)
        where = slice(start, start + self.n)
        self._set_caption(past, batch, start)
        view, evaluation, x = self.chunks.view(past, self.n), evaluations_of(self.world)[0], batch["noise"][:, where]
        left, right = (batch["actions"][:, where].clone() for _ in range(2))
        left[..., YAW], right[..., YAW] = -TURN, TURN
        clean = [evaluation.clean(x, *self.chunks.predict(view, x, rows, evaluation)) for rows in (left, right)]
        return (clean[0] - clean[1]).abs().mean()

    @torch.no_grad()
    def coarse(self, rollout: Rollout) -> Tensor:
        """Coarse latents ``[B, T, C, h / s, w / s]``; only those of latents that end a slot are filled in."""
        config, stride = self.world.config, self.world.config.memory.temporal_stride
        batch, total, channels, height, width = rollout.latents.shape
        shrink = config.memory.spatial_stride
        coarse = rollout.latents.new_zeros(batch, total, channels, height // shrink, width // shrink)
        slots = (total - 1) // stride
        if slots:
            groups = rollout.frames[:, self.r : (1 + slots * stride) * self.r].unflatten(1, (slots, stride * self.r))
            views = coarse_view(groups.flatten(0, 1), config, self.world.codec).unflatten(0, (batch, slots))
            coarse[:, stride : 1 + slots * stride : stride] = views.to(coarse.dtype)
        return coarse

    def _onward(
        self, evaluation: Evaluation, x: Tensor, predicted: tuple[Tensor, Tensor], fresh: Tensor | None
    ) -> Tensor:
        """Where the next evaluation begins; the world's own sampler draws no ``fresh`` noise."""
        return evaluation.onward(x, *predicted)

    def _fresh(self, batch: dict[str, Tensor], index: int, where: slice) -> Tensor | None:
        """The noise that evaluation ``index`` of the chunk at ``where`` ends in."""
        return None

    @torch.no_grad()
    def _begin(self, batch: dict[str, Tensor]) -> Past:
        past = self.chunks.empty(len(batch["latents"]))
        caption, active = encode_captions(self.world, batch["codes"], batch["active"])
        past.caption, past.active = caption.to(past.caption.dtype), active[:, 0]
        return past

    def _set_caption(self, past: Past, batch: dict[str, Tensor], latent: int) -> None:
        """The captions in force at a latent; a chunk has those of its first one, as in a rollout."""
        past.active = batch["active"][:, latent].repeat_interleave(self.world.config.text.tokens_per_field, dim=1)

    def _true_chunks(self, latents: Tensor) -> Iterator[tuple[int, Tensor]]:
        yield 0, latents[:, :1]
        for first in range(1, latents.shape[1], self.n):
            yield first, latents[:, first : first + self.n]

    @torch.no_grad()
    def _go_on(self, past: Past, batch: dict[str, Tensor], first: int, latents: Tensor) -> Tensor:
        """Make a chunk part of the past; gives its frames."""
        frames, past.decoder = self.world.codec.decode(latents, past.decoder if first else None)
        if not first:
            frames = frames.expand(-1, self.r, -1, -1, -1)
        self._commit(past, batch, first, latents, frames)
        return frames

    def _remember(self, past: Past, batch: dict[str, Tensor], rollout: Rollout, first: int, latents: Tensor) -> None:
        """The same with the frames of a rollout, which are not decoded again."""
        end = first + latents.shape[1]
        self._commit(past, batch, first, latents, rollout.frames[:, first * self.r : end * self.r])

    @torch.no_grad()
    def _commit(self, past: Past, batch: dict[str, Tensor], first: int, latents: Tensor, frames: Tensor) -> None:
        self._set_caption(past, batch, first)
        self.chunks.commit(past, latents, frames, batch["actions"][:, first : first + latents.shape[1]])
