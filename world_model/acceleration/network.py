"""Techniques put into one velocity network, of a small world or of a large one's expert."""

from __future__ import annotations

import torch

from world_model.acceleration.caption import cache_text
from world_model.acceleration.projections import FusedSelfAttention
from world_model.acceleration.quantised import Float8Linear, Int8Linear, exchange_layers
from world_model.acceleration.techniques import Techniques
from world_model.transformer import VelocityTransformer

BACKEND = "inductor"  # of torch.compile
SHAPES = 64  # that blocks are compiled for; torch counts those of all worlds of a program together and gives up after 8


def accelerate(network: VelocityTransformer, techniques: Techniques, dynamic: bool | None = False) -> None:
    """Change a network in place; its precision and its graph are the caller's.

    ``dynamic`` is torch.compile's: False where shapes are few, None where sequences grow.
    """
    if techniques.fused_projections:
        for block in network.blocks:
            block.self_attention = FusedSelfAttention(block.self_attention)
    for kind in [Int8Linear.of] * techniques.int8 + [Float8Linear] * techniques.float8:
        for block in network.blocks:
            exchange_layers(block, kind)
    if techniques.compiled:
        torch._dynamo.config.recompile_limit = max(SHAPES, torch._dynamo.config.recompile_limit)
        for block in network.blocks:
            block.compile(backend=BACKEND, dynamic=dynamic)  # equal blocks share what is compiled
    if techniques.cached_text:
        cache_text(network)
