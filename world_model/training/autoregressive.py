"""Stage 5: the chunk-causal model by teacher forcing (Eq. 5) with the mask of Fig. 3.

One sequence holds the clean memory of the true past and noisy versions of many chunks, each at its own noise level,
so one pass trains every chunk of a clip at once. The history gets a little noise, which the network is told, because
at rollout it will be the network's own, imperfect one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.flow import add_noise
from world_model.training.memory_stage import MemoryStage, Noisy
from world_model.training.objective import asked_mean, velocity_errors, with_picture
from world_model.transformer.masks import Layout

FROM_HISTORY = 0.75  # share of steps whose targets lie deep in a clip; the others begin at its first picture
OLD_SINK = 0.25  # share of deep windows whose sink is any earlier picture, as it is late in a rollout


class AutoregressiveStage(MemoryStage):
    """Teacher forcing over ``[sink | compressed | adjacent | targets]``."""

    name = "autoregressive"

    def layout(self, latents: int, first_target: int) -> Layout:
        """Who sees whom in a window of ``latents`` latents that are generated from ``first_target`` on."""
        return self.world.layouts.teacher_forcing(self.world.config, latents, first_target)

    def batch(self, generator: torch.Generator, step: int) -> dict[str, Tensor]:
        deep = bool(torch.rand((), generator=generator) < FROM_HISTORY)
        history = self.draw_history(generator, step) if deep else 0
        batch = self.draw_windows(history + self.config.frames, generator)
        count = len(batch["latents"])
        own_sink = torch.rand(count, generator=generator) >= (OLD_SINK if history else 0.0)
        batch["sink"][own_sink] = batch["latents"][own_sink, 0]
        batch["sink_actions"][own_sink] = batch["actions"][own_sink, 0]
        n, layouts = self.world.config.chunk_latents, self.world.layouts
        return batch | {
            "first_target": torch.tensor(layouts.first_of(layouts.chunk_of(history, n), n)),
            "levels": self.draw_levels(batch["latents"].shape[:2], generator),
            "history_level": torch.rand(count, generator=generator) * self.world.config.flow.history_noise,
            "history_noise": torch.randn(batch["latents"].shape, generator=generator),
            "coarse_noise": torch.randn(batch["coarse"].shape, generator=generator),
        }

    def draw_levels(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """One noise level for each chunk, given to all its latents: ``[B, T]``."""
        count, latents = shape
        n = self.world.config.chunk_latents
        chunks = torch.tensor([self.world.layouts.chunk_of(latent, n) for latent in range(latents)])
        levels = self.noise_levels((count, int(chunks[-1]) + 1), generator)
        return levels[:, chunks]

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        first, noisy = int(batch["first_target"]), self.noisy(batch)
        predicted = self.velocities(self.features_of(batch, noisy))
        errors = velocity_errors(predicted, batch["latents"][:, first:], batch["noise"][:, first:])
        return asked_mean(errors, noisy.levels), {}

    def predict(self, batch: dict[str, Tensor]) -> Tensor:
        """Velocities ``[B, targets, C, h, w]`` from noisy latents and the memory before them."""
        return self.velocities(self.features_of(batch, self.noisy(batch)))

    def noisy(self, batch: dict[str, Tensor]) -> Noisy:
        """The batch's targets at their levels."""
        first, latents = int(batch["first_target"]), batch["latents"].shape[1]
        return self.noisy_targets(batch, list(range(first, latents)), batch["levels"][:, first:])

    def features_of(self, batch: dict[str, Tensor], noisy: Noisy) -> Tensor:
        """What the heads read of noisy versions of the batch's targets, after the memory of the true past."""
        first = int(batch["first_target"])
        layout = self.layout(batch["latents"].shape[1], first)
        return self.features(batch, layout, self.memory(batch, layout), batch["history_level"], noisy)

    def guided_velocities(self, batch: dict[str, Tensor], noisy: Noisy, guidance: float) -> Tensor:
        """Velocities of noisy targets, with classifier-free guidance: ``v_none + guidance (v - v_none)`` where
        ``v_none`` has read no caption."""
        velocity = self.velocities(self.features_of(batch, noisy))
        if guidance == 1:
            return velocity
        without = self.velocities(self.features_of(batch | {"codes": torch.zeros_like(batch["codes"])}, noisy))
        return without + guidance * (velocity - without)

    def memory(self, batch: dict[str, Tensor], layout: Layout) -> list[Tensor]:
        """Tokens of the slightly noisy past: sink, compressed slots, clean latents."""
        network = self.world.transformer
        level, condition = batch["history_level"][:, None], batch.get("condition")
        noise = batch["history_noise"]
        past = with_picture(add_noise(batch["latents"], noise, level), condition)
        coarse = add_noise(batch["coarse"], batch["coarse_noise"], level)
        coarse = with_picture(coarse, batch.get("coarse_condition"))
        sink = with_picture(add_noise(batch["sink"][:, None], noise[:, :1], level), condition, slice(1))
        sink = network.embed_latents(sink)
        return [sink, self.compress(past, coarse, layout), network.embed_latents(past[:, list(layout.adjacent)])]
