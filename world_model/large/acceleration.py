"""A large world, faster: each of its experts with the techniques of `world_model.acceleration`.

Two things are otherwise than in small worlds. The memory grows with every chunk, so blocks are compiled for sequences
of any length, and a graph is recorded for lengths in coarse steps. And weights may be in places where a technique
cannot follow, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor
from torch.nn import functional

from world_model.acceleration.graphs import GraphedCalls
from world_model.acceleration.network import accelerate
from world_model.acceleration.quantised import Int8Linear
from world_model.acceleration.techniques import Techniques
from world_model.acceleration.twin import twin
from world_model.large.parallel import ALONE
from world_model.large.swapping import SwappedExperts
from world_model.large.world import LoadedWorld
from world_model.transformer import Conditioning, KeyValue
from world_model.transformer.rotary import rotary_table, rotate

STEP = 1024  # tokens, by which the length that a graph is recorded for grows
GRAPHS = 2  # kept of each expert, for making a chunk and for remembering it: each holds a context of its own


def accelerated_large(world: LoadedWorld, techniques: Techniques) -> LoadedWorld:
    """A large world with accelerated experts; codec and caption encoder are those of ``world``.

    With several slots of different captions a cached text lasts for a chunk of one slot, which is all its evaluations.

    Raises:
        ValueError: for experts that take turns on the device or are split among processes, and for another precision of
            weights that were loaded with 8 bits.
    """
    refusal = _refusal(world, techniques)
    if refusal:
        raise ValueError(refusal)
    experts = {name: twin(expert).eval() for name, expert in world.experts.items()}
    for expert in experts.values():
        if techniques.bfloat16:
            expert.to(torch.bfloat16)
        accelerate(expert.transformer, techniques, dynamic=None)
        if techniques.graphed:
            expert.transformer.forward = RoundedContext(GraphedCalls(expert.transformer.forward, GRAPHS), STEP)
    return LoadedWorld(world.large, experts, world.codec, world.encode, world.device, world.path)


def _refusal(world: LoadedWorld, techniques: Techniques) -> str | None:
    """Why a world cannot have these techniques, None if it can."""
    if isinstance(world.experts, SwappedExperts):
        return (
            f"the experts of {world.name} take turns on {world.device}, where no technique of acceleration can "
            "follow; load it with swap=False, and with dtype='int8' if it is too large then"
        )
    if world.share != ALONE:
        return (
            f"the experts of {world.name} are split among {world.share.count} processes, where no technique of "
            "acceleration can follow; load it in one process, and with dtype='int8' if it is too large then"
        )
    layers = chain.from_iterable(expert.transformer.modules() for expert in world.experts.values())
    if (techniques.int8 or techniques.float8) and any(isinstance(layer, Int8Linear) for layer in layers):
        return (
            f"{world.name} was loaded with weights of 8 bits, which {techniques} would round once more; load it with "
            "dtype='bfloat16' or leave int8 and float8 out"
        )
    return None


class RoundedContext:
    """A network's ``forward`` that meets contexts of few lengths: multiples of ``step``, filled up in front with
    entries that no token sees."""

    def __init__(self, forward: Callable, step: int) -> None:
        self.forward, self.step = forward, step

    def __call__(
        self,
        tokens: Tensor,
        given: Conditioning,
        positions: Tensor,
        mask: Tensor | None = None,
        context: list[KeyValue] | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """As `VelocityTransformer.forward`."""
        if context is None:
            return self.forward(tokens, given, positions, mask, None)
        count, length = tokens.shape[1], context[0].key.shape[2]
        missing = -length % self.step
        if mask is None:
            mask = torch.ones(1, 1, 1, length, dtype=torch.bool, device=tokens.device)
        longer = [KeyValue(*(functional.pad(x, (0, 0, missing, 0)) for x in pair)) for pair in context]
        tokens, kept = self.forward(tokens, given, positions, functional.pad(mask, (missing, 0)), longer)
        table = rotary_table(positions, kept[0].key.shape[-1])
        for pair, new in zip(context, kept, strict=True):  # the room in it is filled, which a graph does in its copy
            pair.key[:, :, -count:], pair.value[:, :, -count:] = rotate(new.key, table), new.value
        return tokens, kept
