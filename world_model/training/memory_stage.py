"""What the stages with memory share: windows with a growing history, and one masked pass over memory and targets."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from world_model.flow import add_noise
from world_model.training.objective import NetworkStage, drop_captions, with_picture
from world_model.transformer.masks import Layout

HISTORY_STEP = 12  # latents; histories are multiples of it, so that few layouts exist


class Noisy(NamedTuple):
    """Latents ``[B, targets, C, h, w]`` and their noise levels ``[B, targets]``."""

    latents: Tensor
    levels: Tensor

    def onward(self, displacement: Tensor, levels: Tensor) -> Noisy:
        """The same elsewhere on their paths; what has no noise was given, and stays."""
        hidden = self.levels.gt(0)
        moved = torch.where(hidden[..., None, None, None], self.latents + displacement, self.latents)
        return Noisy(moved, torch.where(hidden, levels, self.levels))


class MemoryStage(NetworkStage):
    """A stage whose sequences are laid out by `transformer.masks`."""

    def draw_history(self, generator: torch.Generator, step: int) -> int:
        """How many latents of history this step has: any multiple of 12 up to the longest one that this step allows.

        The longest grows in a straight line over the configuration's ``growth_steps`` (progressive curriculum), and
        is never longer than what the recordings hold.
        """
        grown = min(1.0, (step + 1) / max(1, self.config.growth_steps))
        longest = min(int(grown * self.config.history), self.store.longest - self.config.frames)
        return HISTORY_STEP * int(torch.randint(max(0, longest) // HISTORY_STEP + 1, (), generator=generator))

    def draw_windows(self, latents: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Windows of recordings (`LatentStore.windows`), some without captions, and noise for all of their latents."""
        batch = self.store.windows(self.config.batch, latents, generator)
        drop_captions(batch, generator)
        return batch | {"noise": torch.randn(batch["latents"].shape, generator=generator)}

    def compress(self, latents: Tensor, coarse: Tensor, layout: Layout) -> Tensor:
        """Memory tokens of the layout's slots from a window's latents ``[B, T, C, h, w]`` and coarse latents."""
        return self.world.compress(latents, coarse, layout)

    def features(
        self, batch: dict[str, Tensor], layout: Layout, memory: list[Tensor], memory_level: Tensor, noisy: Noisy
    ) -> Tensor:
        """What the network's heads read, ``[B, targets, P, D]``, of the noisy targets that come after the tokens
        ``memory`` at the noise level ``memory_level [B]``."""
        network, device = self.world.transformer, noisy.levels.device
        count = len(layout.targets)
        targets = with_picture(noisy.latents, batch.get("condition"), list(layout.targets))
        tokens = torch.cat([*memory, network.embed_latents(targets)], dim=1)
        memory_levels = memory_level[:, None].expand(-1, len(layout.latent) - count)
        actions = batch["actions"][:, layout.latent]
        actions[:, 0] = batch["sink_actions"]
        caption, active = self.encode_captions(batch["codes"], batch["active"])
        given = network.condition(
            layout.group.to(device),
            torch.cat([memory_levels, noisy.levels], dim=1),
            actions,
            caption,
            active[:, layout.latent],
        )
        hidden, _ = network(tokens, given, layout.positions.to(device), layout.mask)
        return network.head_input(hidden[:, layout.target_tokens], given.time[:, -count:])

    def velocities(self, features: Tensor) -> Tensor:
        """Velocities ``[B, targets, C, h, w]`` by the network's own head."""
        return self.in_place(self.world.transformer.head(features))

    def in_place(self, patches: Tensor) -> Tensor:
        """What heads say of each token, ``[B, targets, P, O]``, put in its place: ``[B, targets, C, h, w]``."""
        return self.world.transformer.to_latents(patches, self.world.config.token_grid)

    def noisy_targets(self, batch: dict[str, Tensor], targets: list[int], levels: Tensor) -> Noisy:
        """A batch's latents made noisy to ``levels [B, targets]``; those that every rollout is given stay clean."""
        if "given" in batch:
            levels = levels.masked_fill(batch["given"][:, targets], 0.0)
        return Noisy(add_noise(batch["latents"][:, targets], batch["noise"][:, targets], levels), levels)
