"""How a chunk comes out of noise: so many network evaluations, each walking a stretch of the noise grid.

An *evaluation* begins at a noise level and predicts two things: the displacement to the last interval of its stretch,
and the velocity in that interval, the *endpoint*. A world that was not distilled has stretches of one interval, where
the displacement is zero: plain Euler steps. Both give a clean estimate, and there are two ways on from it:

    block_euler  x' = x + displacement + (sigma' - sigma_last) endpoint      stays on the path
    renoised     x' = (1 - sigma') clean + sigma' fresh noise                as the published few-step model does
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from world_model.flow import sampling_levels
from world_model.transformer import VelocityTransformer

if TYPE_CHECKING:
    from world_model.world import World

Noise = Callable[[], Tensor]  # new noise of the shape of a chunk


@dataclass(frozen=True)
class Evaluation:
    """One network evaluation, from noise level ``level`` to ``following``; its last interval begins at ``last``."""

    level: float
    last: float
    following: float
    weight: Tensor  # [2 * O, D], the heads of displacement and endpoint
    bias: Tensor  # [2 * O]

    def predict(self, network: VelocityTransformer, features: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Displacement and endpoint, float32 ``[B, n, C, h, w]`` each, from features ``[B, n, P, D]``."""
        both = functional.linear(features, self.weight.to(features.dtype), self.bias.to(features.dtype))
        displacement, endpoint = (network.to_latents(part, grid) for part in both.chunk(2, dim=-1))
        return displacement, endpoint

    def clean(self, x: Tensor, displacement: Tensor, endpoint: Tensor) -> Tensor:
        """The clean latents that this evaluation of ``x`` predicts."""
        return x + displacement - self.last * endpoint

    def onward(self, x: Tensor, displacement: Tensor, endpoint: Tensor) -> Tensor:
        """The end of the stretch on the path from ``x``."""
        return x + displacement + (self.following - self.last) * endpoint


Sampler = Callable[[Evaluation, Tensor, Tensor, Tensor, Noise], Tensor]


def block_euler(evaluation: Evaluation, x: Tensor, displacement: Tensor, endpoint: Tensor, fresh: Noise) -> Tensor:
    """Go on to the end of the stretch; draws no noise."""
    return evaluation.onward(x, displacement, endpoint)


def renoised(evaluation: Evaluation, x: Tensor, displacement: Tensor, endpoint: Tensor, fresh: Noise) -> Tensor:
    """The clean estimate with fresh noise at the next level; none at the end."""
    clean = evaluation.clean(x, displacement, endpoint)
    following = evaluation.following
    return clean if following == 0 else (1 - following) * clean + following * fresh()


def evaluations_of(world: World, count: int | None = None) -> list[Evaluation]:
    """The ``count`` evaluations of a chunk (default: the world's own number), noisiest first.

    Raises:
        ValueError: when the world cannot be evaluated so often for a chunk.
    """
    count = world.config.flow.sampling_steps if count is None else count
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
        raise ValueError(f"sampling_steps is {count!r}; give a whole number of network evaluations, at least 1")
    decoder = world.parallel_decoder
    if decoder is None:
        head = world.transformer.head
        levels = sampling_levels(count, world.config.flow.shift).tolist()
        weight = torch.cat([torch.zeros_like(head.weight), head.weight])
        bias = torch.cat([torch.zeros_like(head.bias), head.bias])
        return [Evaluation(a, a, b, weight, bias) for a, b in zip(levels, levels[1:], strict=False)]
    levels, bounds = decoder.levels_on_cpu.tolist(), decoder.bounds(count)
    return [
        Evaluation(levels[start], levels[end - 1], levels[end], *decoder.block(start, end))
        for start, end in zip(bounds, bounds[1:], strict=False)
    ]
