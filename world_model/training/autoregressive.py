"""Stage 3: the chunk-causal model by teacher forcing (Eq. 5) with the mask of Fig. 3.

One sequence holds the clean memory of the true past and noisy versions of many chunks, each at its own noise level,
so one pass trains every chunk of a clip at once. The history gets a little noise, which the network is told, because
at rollout it will be the network's own, imperfect one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.flow import add_noise, training_levels
from world_model.training.objective import NetworkStage, drop_captions, velocity_loss
from world_model.transformer.masks import teacher_forcing


class AutoregressiveStage(NetworkStage):
    """Teacher forcing over ``[sink | compressed | adjacent | targets]``."""

    name = "autoregressive"

    def batch(self, generator: torch.Generator) -> dict[str, Tensor]:
        batch = self.store.windows(self.config.batch, self.config.frames, generator)
        drop_captions(batch, generator)
        count, latents = batch["latents"].shape[:2]
        chunks = -(-(latents - 1) // self.world.config.chunk_latents)
        levels = training_levels((count, 1 + chunks), self.world.config.flow.shift, generator)
        per_latent = levels[:, 1:].repeat_interleave(self.world.config.chunk_latents, dim=1)
        history = torch.rand(count, generator=generator) * self.world.config.flow.history_noise
        return batch | {
            "levels": torch.cat([levels[:, :1], per_latent[:, : latents - 1]], dim=1),
            "noise": torch.randn(batch["latents"].shape, generator=generator),
            "history_level": history,
            "history_noise": torch.randn(batch["latents"].shape, generator=generator),
            "coarse_noise": torch.randn(batch["coarse"].shape, generator=generator),
        }

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        predicted = self.predict(batch)
        return velocity_loss(predicted, batch["latents"], batch["noise"]), {}

    def predict(self, batch: dict[str, Tensor]) -> Tensor:
        """Velocities ``[B, T, C, h, w]`` of all latents from their noisy versions and the memory before them."""
        network, config = self.world.transformer, self.world.config
        latents, levels = batch["latents"], batch["levels"]
        count, device = latents.shape[1], latents.device
        layout = teacher_forcing(config, count, 0)
        stride = config.memory.temporal_stride

        level = batch["history_level"][:, None]
        past = add_noise(latents, batch["history_noise"], level)
        coarse = add_noise(batch["coarse"], batch["coarse_noise"], level)
        slot_ends = stride * torch.arange(1, layout.slots + 1)
        parts = [network.embed_latents(past[:, :1])]
        if layout.slots:
            parts.append(self.world.compressor(past[:, : 1 + stride * layout.slots], coarse[:, slot_ends], network))
        parts.append(network.embed_latents(past[:, list(layout.adjacent)]))
        parts.append(network.embed_latents(add_noise(latents, batch["noise"], levels)))

        targets = len(layout.targets)
        history = level.expand(-1, len(layout.latent) - targets)
        caption, active = self.encode_captions(batch["codes"], batch["active"])
        given = network.condition(
            layout.group.to(device),
            torch.cat([history, levels], dim=1),
            batch["actions"][:, layout.latent],
            caption,
            active[:, layout.latent],
        )
        hidden, _ = network(torch.cat(parts, dim=1), given, layout.positions.to(device), layout.mask.to(device))
        return network.velocity(hidden[:, layout.target_tokens], given.time[:, -targets:], config.token_grid)
