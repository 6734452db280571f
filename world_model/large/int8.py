"""Weights of 8 bits: the linear layers of the blocks, which hold nearly all of a large world, at half of bf16's size.

Weight-only: every row of a weight ``[out, in]`` is whole numbers from -127 to 127 times a scale of its own, and is
multiplied out when it is used; inputs, biases and sums keep their precision. A weight is off by at most half a step,
1 / 254 of the largest one of its row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.large.tensor_files import assign

LARGEST = 127


class Int8Linear(nn.Module):
    """A frozen linear layer that keeps its weight in 8 bits; ``weight`` is that weight in the precision of ``bias``."""

    def __init__(self, weight: Tensor, bias: nn.Parameter) -> None:
        super().__init__()
        scale = weight.abs().amax(dim=1, keepdim=True).float() / LARGEST
        steps = torch.where(scale > 0, scale, torch.ones_like(scale))  # a row of zeros
        self.register_buffer("codes", (weight / steps).round_().to(torch.int8))  # int8 [out, in]
        self.register_buffer("scale", scale)  # float32 [out, 1]
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        """The weight ``[out, in]``."""
        return self.codes.to(self.bias.dtype) * self.scale.to(self.bias.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


def assign_int8(expert: nn.Module, name: str, value: Tensor) -> None:
    """`tensor_files.assign`, but weights of the blocks' linear layers become `Int8Linear`."""
    path, _, leaf = name.rpartition(".")
    layer = expert.get_submodule(path)
    if leaf == "weight" and isinstance(layer, nn.Linear) and ".blocks." in path:
        owner, _, place = path.rpartition(".")
        setattr(expert.get_submodule(owner), place, Int8Linear(value, layer.bias))
    else:
        assign(expert, name, value)
