"""The published few-step model: two evaluations of each expert, each covering a block of noise intervals.

Parallel decoding distillation trains one linear head per interval of a fine noise grid. For a block of intervals
``[a, b)`` that is evaluated once they fuse into two: ``sum_{k=a}^{b-2} (sigma_{k+1} - sigma_k) W_k`` gives the
*displacement* to the block's last interval and ``W_{b-1}`` the velocity there, the *endpoint*. With both,

    x_end = x + displacement,   clean = x_end - sigma_{b-1} * endpoint,

and the next block starts from the clean estimate with fresh noise at level ``sigma_b``.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.flow import add_noise, sampling_levels
from world_model.large.config import SINGLE, LargeConfig
from world_model.parallel_decoder import fuse

INTERVALS = 128
SHIFT = 7.0
CALLS_PER_EXPERT = 2


class Call(NamedTuple):
    """One network evaluation: intervals ``[start, end)`` of the grid, by the ``local``-th head of an expert."""

    expert: str
    local: int
    start: int
    end: int


# Of the published pair; a single expert has one for each of its configuration's blocks, see `calls_of`.
CALLS = (Call("high", 0, 0, 28), Call("high", 1, 28, 56), Call("low", 0, 56, 92), Call("low", 1, 92, 128))


def calls_of(config: LargeConfig) -> tuple[Call, ...]:
    """The network evaluations of a chunk of a distilled world."""
    if config.experts != (SINGLE,):
        return CALLS
    ends = list(accumulate(config.world.flow.blocks))
    return tuple(Call(SINGLE, local, *pair) for local, pair in enumerate(zip([0, *ends], ends, strict=False)))


def grid_levels() -> Tensor:
    """The noise grid ``sigma_0 = 1 > ... > sigma_128 = 0``, float32 ``[129]``."""
    return sampling_levels(INTERVALS, SHIFT)


class IntervalHeads(nn.Module):
    """The fused heads of one expert: features ``[..., D]`` to displacement and endpoint patches ``[..., 2 * O]``."""

    def __init__(self, width: int, out: int, calls: int = CALLS_PER_EXPERT) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(calls, 2 * out, width))
        self.bias = nn.Parameter(torch.zeros(calls, 2 * out))

    def forward(self, x: Tensor, call: int) -> Tensor:
        return functional.linear(x, self.weight[call], self.bias[call])


def intervals_of(expert: str) -> tuple[int, int]:
    """The first interval of an expert and the one after its last."""
    if expert == SINGLE:
        return 0, INTERVALS
    calls = [call for call in CALLS if call.expert == expert]
    return calls[0].start, calls[-1].end


def bank_shape(fused: tuple[int, ...], expert: str) -> tuple[int, ...]:
    """The shape of the interval heads that fuse into ``fused``, ``[2, 2 * O, ...]``: ``[K, O, ...]``."""
    start, end = intervals_of(expert)
    return end - start, fused[1] // 2, *fused[2:]


def fuse_bank(bank: Tensor, expert: str) -> Tensor:
    """Fuse an expert's interval heads ``[K, O, ...]`` (weights or biases) into float32 ``[2, 2 * O, ...]``."""
    levels = grid_levels().to(bank.device)
    first, _ = intervals_of(expert)
    fused = []
    for call in CALLS:
        if call.expert == expert:
            heads = bank[call.start - first : call.end - first]
            fused.append(fuse(heads, levels[call.start : call.end].diff()))
    return torch.stack(fused)


def clean_estimate(x: Tensor, displacement: Tensor, endpoint: Tensor, call: Call) -> Tensor:
    """The clean latents that an evaluation at ``x`` predicts, float32."""
    return x + displacement - grid_levels()[call.end - 1].item() * endpoint


def next_input(clean: Tensor, noise: Tensor, call: Call) -> Tensor:
    """Where the evaluation after ``call`` starts: the clean estimate with fresh ``noise`` of the same shape."""
    return add_noise(clean, noise, grid_levels()[call.end].to(clean.device))
