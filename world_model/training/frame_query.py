"""Stage 3, memory I: frame query (TinyHistory, arXiv 2512.23851, stage I).

A random set of frames stays clean in the compressor's input, all others are drowned in noise, and the network must
generate the clean ones from the compressed memory alone. What it is asked for can be anywhere in the history, so the
compressor cannot learn to keep only the newest frames.
"""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.flow import add_noise
from world_model.training.memory_stage import MemoryStage
from world_model.training.objective import velocity_loss, with_picture

NOISE_MEAN = 0.2  # the other frames' level is logit-normal around it, with deviation 1


class FrameQueryStage(MemoryStage):
    """``|| (noise - H[Q]) - G(H[Q] noised, C(H noised outside Q)) ||^2`` for random frames ``Q`` of a history ``H``."""

    name = "frame_query"
    rows = {"queried": None}

    def batch(self, generator: torch.Generator, step: int) -> dict[str, Tensor]:
        latents = self.draw_history(generator, step) + self.config.frames
        batch = self.draw_windows(latents, generator)
        count = len(batch["latents"])
        stored = self.world.layouts.stored_latents(self.world.config, latents)
        chosen = torch.randperm(len(stored), generator=generator)[: self.config.frames]
        queried = torch.tensor(sorted(stored[index] for index in chosen.tolist()))
        hidden = (torch.randn(count, latents, generator=generator) + NOISE_MEAN).sigmoid()
        hidden[:, queried] = 0.0
        return batch | {
            "queried": queried,
            "hidden": hidden,
            "levels": self.noise_levels((count, len(queried)), generator),
            "history_noise": torch.randn(batch["latents"].shape, generator=generator),
            "coarse_noise": torch.randn(batch["coarse"].shape, generator=generator),
        }

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        network, queried = self.world.transformer, batch["queried"].tolist()
        layout = self.world.layouts.frame_query(self.world.config, batch["latents"].shape[1], tuple(queried))
        history = add_noise(batch["latents"], batch["history_noise"], batch["hidden"])
        history = with_picture(history, batch.get("condition"))
        coarse = add_noise(batch["coarse"], batch["coarse_noise"], batch["hidden"])
        coarse = with_picture(coarse, batch.get("coarse_condition"))
        batch = batch | {"sink_actions": batch["actions"][:, 0]}
        memory = [network.embed_latents(history[:, :1]), self.compress(history, coarse, layout)]
        none = torch.zeros_like(batch["levels"][:, 0])
        noisy = self.noisy_targets(batch, queried, batch["levels"])
        predicted = self.velocities(self.features(batch, layout, memory, none, noisy))
        return velocity_loss(predicted, batch["latents"][:, queried], batch["noise"][:, queried]), {}
