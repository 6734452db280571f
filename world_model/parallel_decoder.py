"""Parallel decoding (PDD, arXiv:2607.26004): many steps of the noise grid for one evaluation of the network.

The grid ``sigma_0 = 1 > ... > sigma_N = 0`` has one linear head per interval. Evaluated once, at interval ``n``, the
network gives features ``H``, and head ``k >= n`` the mean velocity of interval ``k``, ``u_k = W_k H + b_k``. Following
them, ``x_{k+1} = x_k + h_k u_k`` with ``h_k = sigma_{k+1} - sigma_k``, walks down the grid without another evaluation.
The heads being linear, any stretch of that walk is one linear layer, too.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.config import WorldConfig
from world_model.flow import sampling_levels


class ParallelDecoder(nn.Module):
    """One head per interval of a world's noise grid, from features of width ``D`` to ``O`` numbers per token.

    Of a network that serves only some ``intervals`` there are only these heads; intervals are counted from the first of
    the grid all the same.
    """

    def __init__(self, config: WorldConfig, intervals: range | None = None) -> None:
        super().__init__()
        self.blocks, self.fused, self.shift = config.flow.blocks, config.flow.fused, config.flow.shift
        every = range(len(self.blocks) if self.fused else sum(self.blocks))
        self.intervals = every if intervals is None else intervals
        out = config.codec.latent_channels * config.transformer.patch**2
        self.weight = nn.Parameter(torch.zeros(len(self.intervals), out, config.transformer.width))
        self.bias = nn.Parameter(torch.zeros(len(self.intervals), out))

    @property
    def levels(self) -> Tensor:
        """Where the heads' intervals begin, and 0: float32 ``[N + 1]``."""
        return self.levels_on_cpu.to(self.bias.device)

    @property
    def levels_on_cpu(self) -> Tensor:
        """The same for whoever reads the numbers: no GPU is waited for."""
        return head_levels(self.blocks, self.fused, self.shift)

    def velocity(self, features: Tensor, interval: Tensor) -> Tensor:
        """Velocities ``[B, T, P, O]`` of one interval per latent, int64 ``[B, T]``, from features ``[B, T, P, D]``."""
        head = interval - self.intervals.start
        return _linear(features, self.weight[head], self.bias[head])

    def displacement(self, features: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """``sum_{k=start}^{end-1} h_k u_k``, float32 ``[B, T, P, O]``, for one stretch per latent, int64 ``[B, T]``."""
        first, last = self.intervals.start, self.intervals.stop
        weight, bias = running_heads(self.weight, self.bias, self.levels[first : last + 1])
        start, end = start - first, end - first
        kind = features.device.type  # "meta" knows no autocast
        with torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext():
            # The late steps are small: bf16 would lose them.
            return _linear(features.float(), weight[end] - weight[start], bias[end] - bias[start])

    def block(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The heads of intervals ``[start, end)`` as one layer: weight ``[2 * O, D]`` and bias ``[2 * O]``, whose first
        half is the displacement to the last interval and whose second half is the velocity there."""
        first = self.intervals.start
        weight, bias = self.weight[start - first : end - first], self.bias[start - first : end - first]
        steps = self.levels[start:end].diff()
        return fuse(weight, steps), fuse(bias, steps)

    def serves(self, start: int, end: int) -> bool:
        """Whether the intervals ``[start, end)`` all have heads here."""
        return self.intervals.start <= start and end <= self.intervals.stop

    def bounds(self, evaluations: int) -> list[int]:
        """The intervals at which so many evaluations of a chunk begin, and ``N``: the blocks, merged if they are more.

        Raises:
            ValueError: when the blocks do not split into as many equal groups.
        """
        count = len(self.blocks)
        if evaluations < 1 or count % evaluations:
            fitting = [str(n) for n in range(1, count + 1) if count % n == 0]
            raise ValueError(
                f"sampling_steps is {evaluations} and this world was distilled to {count} network evaluations; "
                f"choose one of {', '.join(fitting)}"
            )
        sizes = [1] * count if self.fused else self.blocks
        ends = torch.tensor(sizes).cumsum(0)[count // evaluations - 1 :: count // evaluations]
        return [0, *ends.tolist()]


@lru_cache(maxsize=16)
def head_levels(blocks: tuple[int, ...], fused: bool, shift: float) -> Tensor:
    """The noise levels between which heads work, float32 ``[N + 1]``: all of the grid, or only where blocks begin."""
    levels = sampling_levels(sum(blocks), shift)
    return levels[torch.tensor([0, *blocks]).cumsum(0)] if fused else levels


def running_heads(weight: Tensor, bias: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """``sum_{k<n} h_k W_k`` for every ``n`` up to ``N``, float32 ``[N + 1, O, D]``, and the biases alike."""
    steps = levels.diff()
    weight = functional.pad((steps[:, None, None] * weight.float()).cumsum(0), (0, 0, 0, 0, 1, 0))
    return weight, functional.pad((steps[:, None] * bias.float()).cumsum(0), (0, 0, 1, 0))


def fuse(heads: Tensor, steps: Tensor) -> Tensor:
    """Heads (or biases) of consecutive intervals ``[K, O, ...]`` as one, float32 ``[2 * O, ...]``: the displacement
    over the first ``K - 1`` intervals, whose ``steps [K - 1]`` are given, and the velocity of the last."""
    heads = heads.float()
    return torch.cat([torch.tensordot(steps, heads[:-1], dims=1), heads[-1]])


@torch.no_grad()
def fused_heads(decoder: ParallelDecoder) -> dict[str, Tensor]:
    """The state of a decoder with one head per block, the mean velocity over it."""
    levels, bounds = decoder.levels, torch.tensor(decoder.bounds(len(decoder.blocks)))
    spans = levels[bounds].diff()
    weight, bias = (heads[bounds].diff(dim=0) for heads in running_heads(decoder.weight, decoder.bias, levels))
    return {"weight": weight / spans[:, None, None], "bias": bias / spans[:, None]}


def _linear(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A layer of its own for every latent: ``[B, T, P, D]``, ``[B, T, O, D]``, ``[B, T, O]`` to ``[B, T, P, O]``."""
    return features @ weight.transpose(-1, -2).to(features.dtype) + bias[..., None, :].to(features.dtype)
