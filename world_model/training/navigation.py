"""Stage 2: the bidirectional model learns to follow actions and captions."""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.flow import add_noise
from world_model.training.objective import NetworkStage, asked_mean, drop_captions, velocity_errors, with_picture
from world_model.transformer.rotary import grid_positions

CLEAN_START = 0.7  # share of clips whose first latent is given, as in image-to-video
SHARED_LEVEL = 0.5  # share of clips with one noise level for all latents; the others draw one for each


class NavigationStage(NetworkStage):
    """Flow matching on whole clips with full attention inside the clip."""

    name = "navigation"

    def batch(self, generator: torch.Generator, step: int) -> dict[str, Tensor]:
        batch = self.store.windows(self.config.batch, self.config.frames, generator)
        drop_captions(batch, generator)
        count, latents = batch["latents"].shape[:2]
        levels = self.noise_levels((count, latents), generator)
        shared = torch.rand(count, generator=generator) < SHARED_LEVEL
        levels[shared] = levels[shared, -1:]
        if "given" in batch:  # it is known what a rollout of this world is given
            levels[batch["given"]] = 0.0
        else:
            levels[torch.rand(count, generator=generator) < CLEAN_START, 0] = 0.0
        noise = torch.randn(batch["latents"].shape, generator=generator)
        asked = levels.gt(0).float().mean()  # of the whole batch, however many processes share it
        return batch | {"levels": levels, "noise": noise, "asked": asked}

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        network, config = self.world.transformer, self.world.config
        latents, levels = batch["latents"], batch["levels"]
        count = latents.shape[1]
        rows, columns = config.token_grid
        group = torch.arange(count, device=latents.device).repeat_interleave(rows * columns)
        positions = grid_positions(torch.arange(count, device=latents.device).float(), config.token_grid)
        caption, active = self.encode_captions(batch["codes"], batch["active"])
        given = network.condition(group, levels, batch["actions"], caption, active)
        noisy = with_picture(add_noise(latents, batch["noise"], levels), batch.get("condition"))
        hidden, _ = network(network.embed_latents(noisy), given, positions)
        predicted = network.velocity(hidden, given.time, config.token_grid)
        return asked_mean(velocity_errors(predicted, latents, batch["noise"]), levels, batch["asked"]), {}
