"""Stage 6: few-step initialisation by parallel decoding distillation (PDD, arXiv:2607.26004, in place of Eq. 6).

The student is the autoregressive model with a head per interval of a fine noise grid (`parallel_decoder`). From noisy
latents at the start ``n`` of a block it walks, with its own heads, to the start of a random interval ``k`` of that
block, and head ``k`` learns the velocity that the teacher has there:

    loss = || u_k(x_n) - T(sg(x_k), sigma_k) ||^2,    x_k = x_n + sum_{n <= j < k} h_j u_j(x_n)

``T`` is the frozen autoregressive model that the run began with. Eq. 6 prints the student itself, which has no anchor.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from world_model.config import FewStepConfig
from world_model.parallel_decoder import ParallelDecoder
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.latents import LatentStore
from world_model.training.memory_stage import Noisy
from world_model.training.objective import asked_mean
from world_model.world import World


class FewStepStage(AutoregressiveStage):
    """Every chunk of a teacher-forced sequence is a sample: it draws a block and an interval of its own."""

    name = "few_step"
    config: FewStepConfig

    def __init__(self, world: World, store: LatentStore, config: FewStepConfig) -> None:
        super().__init__(world, store, config)
        if world.parallel_decoder is None:
            raise ValueError(f"the world {world.name!r} has no interval heads; give it some with World.with_blocks")
        self.teacher = AutoregressiveStage(copy.deepcopy(world.with_blocks(())), store, config)
        self.teacher.requires_grad_(False)

    @classmethod
    def starts_from(cls, world: World) -> World:
        """The world with a new head for each interval."""
        return world.with_blocks(world.config.curriculum.few_step.blocks)

    @property
    def decoder(self) -> ParallelDecoder:
        return self.world.parallel_decoder

    def batch(self, generator: torch.Generator, step: int) -> dict[str, Tensor]:
        batch = super().batch(generator, step)
        count, latents = batch["latents"].shape[:2]
        starts, sizes = (torch.tensor(values) for values in self._stretches())
        drawn = torch.randint(len(starts), (count, latents), generator=generator)
        offset = (torch.rand(count, latents, generator=generator) * sizes[drawn]).long()
        n = self.world.config.chunk_latents
        chunk_of = self.world.layouts.chunk_of
        chunks = torch.tensor([chunk_of(latent, n) for latent in range(latents)])  # one draw for all latents of a chunk
        start, offset = starts[drawn][:, chunks], offset[:, chunks]
        return batch | {"start": start, "interval": start + offset}

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        first = int(batch["first_target"])
        start, interval = batch["start"][:, first:], batch["interval"][:, first:]
        levels = self.decoder.levels
        noisy = self.block_starts(batch, start)
        features = self.features_of(batch, noisy)
        with torch.no_grad():
            walked = self.in_place(self.decoder.displacement(features, start, interval))
            target = self.target(batch, noisy.onward(walked, levels[interval]), levels[interval + 1])
        predicted = self.in_place(self.decoder.velocity(features, interval))
        return asked_mean((predicted - target).square(), noisy.levels), {}

    def block_starts(self, batch: dict[str, Tensor], start: Tensor) -> Noisy:
        """Noisy latents where blocks begin, int64 ``[B, targets]``: the recorded ones with noise."""
        targets = list(range(int(batch["first_target"]), batch["latents"].shape[1]))
        return self.noisy_targets(batch, targets, self.decoder.levels[start])

    def target(self, batch: dict[str, Tensor], noisy: Noisy, following: Tensor) -> Tensor:
        """The teacher's mean velocity from ``noisy`` to the levels ``following [B, targets]``: that of an Euler step,
        or of a midpoint step."""
        velocity = self._guided(batch, noisy)
        if not self.config.midpoint:
            return velocity
        half = (following - noisy.levels) / 2
        middle = noisy.onward(half[..., None, None, None] * velocity, noisy.levels + half)
        return self._guided(batch, middle)

    def _guided(self, batch: dict[str, Tensor], noisy: Noisy) -> Tensor:
        return self.teacher.guided_velocities(batch, noisy, self.config.guidance)

    def _stretches(self) -> tuple[list[int], list[int]]:
        """Beginnings and sizes of all stretches that an evaluation of this network may cover, those of fewer
        evaluations included."""
        count = len(self.decoder.blocks)
        bounds = [self.decoder.bounds(n) for n in range(1, count + 1) if count % n == 0]
        pairs = [pair for bound in bounds for pair in zip(bound, bound[1:], strict=False)]
        pairs = [pair for pair in pairs if self.decoder.serves(*pair)]
        return [start for start, _ in pairs], [end - start for start, end in pairs]


class DataFreeFewStepStage(FewStepStage):
    """The same with the student's own samples: noise, walked down with its own heads to where the block begins."""

    name = "few_step_data_free"
    settings_name = "few_step"

    @torch.no_grad()
    def block_starts(self, batch: dict[str, Tensor], start: Tensor) -> Noisy:
        levels, bounds = self.decoder.levels, self.decoder.bounds(len(self.decoder.blocks))
        noisy = super().block_starts(batch, torch.zeros_like(start))  # at the first level, where all is noise
        for here, following in zip(bounds[:-2], bounds[1:-1], strict=True):
            ends, walking = torch.full_like(start, following), start.ge(following)
            features = self.features_of(batch, noisy)
            walked = self.in_place(self.decoder.displacement(features, torch.full_like(start, here), ends))
            walked = walked * walking[..., None, None, None]
            noisy = noisy.onward(walked, torch.where(walking, levels[ends], noisy.levels))
        return noisy
