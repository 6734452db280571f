"""Fused projections: queries, keys and values of self-attention in one product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from world_model.acceleration.twin import Module, twin
from world_model.transformer import KeyValue
from world_model.transformer.block import SelfAttention


class FusedSelfAttention(SelfAttention):
    """Self-attention that reads its tokens once for queries, keys and values."""

    def __init__(self, attention: SelfAttention) -> None:
        nn.Module.__init__(self)
        self.heads = attention.heads
        self.qkv = side_by_side((attention.q, attention.k, attention.v))
        self.o, self.norm_q, self.norm_k = attention.o, attention.norm_q, attention.norm_k

    def project(self, x: Tensor, source: Tensor) -> tuple[Tensor, KeyValue]:
        return self.split(*self.qkv(x).chunk(3, dim=-1))


def side_by_side(layers: Sequence[Module]) -> Module:
    """One layer that gives the outputs of several, one after the other: linear ones, which may have 8 bits."""
    whole = twin(layers[0])
    for name in layers[0].state_dict():
        stacked = torch.cat([getattr(layer, name) for layer in layers])
        setattr(whole, name, nn.Parameter(stacked, requires_grad=False) if name in whole._parameters else stacked)
    whole.out_features = len(whole.bias)
    return whole
