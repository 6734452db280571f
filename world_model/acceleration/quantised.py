"""Linear layers whose weights have 8 bits, and how they come into a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.transformer.block import Block

FLOAT8 = torch.float8_e4m3fn
LARGEST = 127  # of int8
PACKED = (
    16  # inputs that torch's kernel for CPUs takes at once; in bf16 it reads past the end of rows that do not divide
)


class Int8Linear(nn.Module):
    """A frozen linear layer that keeps its weight in 8 bits; inputs, biases and sums keep their precision.

    Every row of the weight ``[out, in]`` is whole numbers from -127 to 127 times a scale of its own, rounded to
    nearest: off by at most half a step, 1 / 254 of the largest one of its row.
    """

    def __init__(self, weight: Tensor, bias: nn.Parameter) -> None:
        super().__init__()
        scale = weight.abs().amax(dim=1, keepdim=True).float() / LARGEST
        steps = torch.where(scale > 0, scale, torch.ones_like(scale))  # a row of zeros
        self.register_buffer("codes", (weight / steps).round_().to(torch.int8))  # int8 [out, in]
        self.register_buffer("scale", scale[:, 0].to(weight.dtype))  # [out]
        self.bias = bias

    @classmethod
    def of(cls, layer: nn.Linear) -> Int8Linear:
        """A linear layer in 8 bits."""
        return cls(layer.weight, layer.bias)

    @property
    def weight(self) -> Tensor:
        """The weight ``[out, in]`` in the precision of ``bias``, for who needs a part of it."""
        return self.codes.to(self.bias.dtype) * self.scale.to(self.bias.dtype)[:, None]

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale.to(x.dtype)
        if x.device.type == "cpu" and x.shape[-1] % PACKED == 0:  # a kernel that reads int8
            product = torch._weight_int8pack_mm(x.flatten(0, -2).contiguous(), self.codes, scale)
            return product.unflatten(0, x.shape[:-1]) + self.bias
        return functional.linear(x, self.codes.to(x.dtype)) * scale + self.bias


class Float8Linear(nn.Module):
    """A linear layer in E4M3: one scale for the weights, and one for the inputs of each call."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = _to_float8(layer.weight)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        rows, scale = _to_float8(x.flatten(0, -2))
        product = torch._scaled_mm(rows, self.weight.t(), scale, self.scale, out_dtype=torch.bfloat16)
        return (product.unflatten(0, x.shape[:-1]) + self.bias).to(x.dtype)


def _to_float8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers in E4M3 and the float32 factor that gives them back."""
    scale = (x.abs().amax().float() / torch.finfo(FLOAT8).max).clamp_min(1e-12)
    return (x / scale).to(FLOAT8), scale


def exchange_layers(block: Block, kind: Callable[[nn.Linear], nn.Module]) -> None:
    """Put ``kind`` in place of a block's linear layers; `ActionResidual.hidden` stays, whose halves are used alone."""
    for parent, name, layer in [*_linear_layers(block)]:
        if layer is not block.action.hidden:
            setattr(parent, name, kind(layer))


def _linear_layers(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                yield parent, name, child
