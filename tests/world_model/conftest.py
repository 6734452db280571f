"""A tiny world whose every weight matters: nothing is left at its zero initialisation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from world_model.config import TINY
from world_model.world import World


def scrambled(config, seed: int = 0) -> World:
    world = World.random(config, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in world.parameters():
            scale = 0.3 if parameter.ndim < 2 else 1.2 / parameter[0].numel() ** 0.5
            parameter.copy_(parameter + torch.randn(parameter.shape, generator=generator) * scale)
    return world.eval().requires_grad_(False)


@pytest.fixture(scope="session")
def tiny_world() -> World:
    return scrambled(TINY)


@pytest.fixture(scope="session")
def chunked_world() -> World:
    """Four latents per chunk, four frames per latent, as in the large model."""
    codec = replace(TINY.codec, temporal_factor=4)
    return scrambled(replace(TINY, chunk_latents=4, codec=codec), seed=5)
