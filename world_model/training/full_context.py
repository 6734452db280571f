"""Not part of the curriculum: what the compressed memory is compared with (the paper's Table 7).

The autoregressive stage once more, with every past latent at full resolution in place of the compressed slots.
"""

from __future__ import annotations

from dataclasses import replace

from world_model.training.autoregressive import AutoregressiveStage
from world_model.world import World


class FullContextStage(AutoregressiveStage):
    """Teacher forcing over ``[sink | everything | targets]``, up to the longest history of its configuration."""

    name = "full_context"

    @classmethod
    def starts_from(cls, world: World) -> World:
        """The world without compressed slots, and with room for the longest history."""
        settings = world.config.curriculum.full_context
        everything = settings.history + settings.frames
        memory = replace(world.config.memory, budget_slots=0, adjacent_latents=everything)
        return super().starts_from(world).with_memory(memory)
