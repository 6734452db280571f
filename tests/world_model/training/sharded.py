"""One of two processes that split the networks of a stage and compare them with whole ones; started by `torchrun`."""

from __future__ import annotations

import copy
import os

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from world_model.config import TINY
from world_model.training.processes import average_gradients
from world_model.training.sharding import gathered, shard_networks
from world_model.transformer.rotary import grid_positions
from world_model.world import World

LATENTS, TOKENS = 3, 16


def velocity(world: World, rows: slice) -> torch.Tensor:
    """Velocities of some rows of a batch of four."""
    network, generator = world.transformer, torch.Generator().manual_seed(2)
    latents = torch.randn(4, LATENTS, *world.config.latent_shape, generator=generator)[rows]
    caption = torch.randn(4, 6, world.config.text.width, generator=generator)[rows]
    actions = torch.randn(4, LATENTS, 6, generator=generator)[rows]
    count = len(latents)
    group = torch.arange(LATENTS).repeat_interleave(TOKENS)
    positions = grid_positions(torch.arange(LATENTS).float(), world.config.token_grid)
    active = torch.ones(count, LATENTS, 6, dtype=torch.bool)
    given = network.condition(group, torch.full((count, LATENTS), 0.5), actions, caption, active)
    hidden, _ = network(network.embed_latents(latents), given, positions)
    return network.velocity(hidden, given.time, world.config.token_grid)


def main() -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    world = World.random(TINY)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in world.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    whole, teacher, coarse = copy.deepcopy(world), copy.deepcopy(world).requires_grad_(False), copy.deepcopy(world)
    mesh = init_device_mesh("cpu", (2,))
    assert shard_networks(nn.ModuleList([world, teacher]), mesh) == 2
    assert shard_networks(coarse, mesh, torch.bfloat16) == 1
    assert isinstance(world.transformer.blocks[0].ffn[0].weight, DTensor)

    own = slice(2 * distributed.get_rank(), 2 * distributed.get_rank() + 2)
    wanted, found = velocity(whole, slice(None)), velocity(world, own)
    torch.testing.assert_close(found, wanted[own], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(velocity(teacher, own), wanted[own], atol=1e-5, rtol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        by_autocast, by_gathering = velocity(whole, own), velocity(coarse, own)
    torch.testing.assert_close(by_gathering, by_autocast, atol=1e-5, rtol=1e-5)
    by_gathering.square().mean().backward()
    updated = coarse.transformer.blocks[0].ffn[0].weight
    assert updated.dtype == updated.grad.dtype == torch.float32
    wanted.square().mean().backward()
    found.square().mean().backward()
    average_gradients(world.parameters())
    gradients = [{n: p.grad for n, p in w.named_parameters() if p.grad is not None} for w in (whole, world)]
    for left, right in ((gradients[0], gathered(gradients[1])), (whole.state_dict(), gathered(world.state_dict()))):
        if distributed.get_rank():
            assert not right
            continue
        assert left.keys() == right.keys() and len(left) > 50
        for name, value in left.items():
            torch.testing.assert_close(right[name], value, atol=1e-5, rtol=1e-5, msg=name)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)
