"""Flow matching: noise levels, noisy samples and their velocities, the Euler sampler.

``x_sigma = (1 - sigma) x + sigma * noise`` with sigma 1 = noise and 0 = data; the velocity is ``noise - x``.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

ALL_LEVELS = 0.0, 1.0
Levels = TypeVar("Levels", Tensor, float)


def shift_levels(levels: Levels, shift: float) -> Levels:
    """Move levels in [0, 1] toward the noisy end: ``s u / (1 + (s - 1) u)``; the inverse is that of ``1 / s``."""
    return shift * levels / (1 + (shift - 1) * levels)


def training_levels(
    shape: tuple[int, ...], shift: float, generator: torch.Generator, within: tuple[float, float] = ALL_LEVELS
) -> Tensor:
    """Levels drawn from a logit-normal law, then shifted; of that law only the part ``within`` two levels, which can be
    drawn, too."""
    normal = torch.randn(shape, generator=generator)
    if within == ALL_LEVELS:
        return shift_levels(normal.sigmoid(), shift)
    ends = shift_levels(torch.tensor(within, dtype=torch.float64), 1 / shift).clamp(0, 1).logit()
    low, high = torch.special.ndtr(ends)
    normal = torch.special.ndtri(low + (high - low) * torch.special.ndtr(normal.double()))
    return shift_levels(normal.sigmoid(), shift).float().clamp(*within)


def sampling_levels(steps: int, shift: float) -> Tensor:
    """The grid ``1 = sigma_0 > ... > sigma_steps = 0``, float32 ``[steps + 1]``."""
    return shift_levels(torch.linspace(1, 0, steps + 1), shift)


def add_noise(clean: Tensor, noise: Tensor, levels: Tensor) -> Tensor:
    """``x_sigma``; ``levels`` has the leading dimensions of ``clean`` and is broadcast over the others."""
    levels = levels.reshape(levels.shape + (1,) * (clean.ndim - levels.ndim))
    return (1 - levels) * clean + levels * noise
