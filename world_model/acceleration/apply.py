"""From a world to the accelerated one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from world_model.acceleration.graphs import GraphedCalls
from world_model.acceleration.network import accelerate
from world_model.acceleration.techniques import Techniques
from world_model.acceleration.twin import twin
from world_model.world import World

if TYPE_CHECKING:
    from world_model.large.world import LoadedWorld


def accelerated(world: World | LoadedWorld, techniques: Techniques) -> World | LoadedWorld:
    """A world that shares the weights of ``world`` as far as their precision stays, on the same device.

    Of a large world it is the experts that are accelerated; codec and caption encoder stay as they are.

    Raises:
        ValueError: naming what a technique needs that is not here, and for large worlds as
            `large.acceleration.accelerated_large`.
    """
    missing = techniques.missing(world.device)
    if missing:
        raise ValueError(f"{techniques} {missing}; leave out what is not there")
    if not isinstance(world, World):
        from world_model.large.acceleration import accelerated_large

        return accelerated_large(world, techniques)
    world = twin(world)
    if techniques.bfloat16:
        for network in (world.transformer, world.compressor, world.codec):
            network.to(torch.bfloat16)
    accelerate(world.transformer, techniques)
    if techniques.graphed:
        world.transformer.forward = GraphedCalls(world.transformer.forward)
    return world.eval()
