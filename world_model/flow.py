"""Flow matching: noise levels, noisy samples and their velocities, the Euler sampler.

``x_sigma = (1 - sigma) x + sigma * noise`` with sigma 1 = noise and 0 = data; the velocity is ``noise - x``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shift_levels(levels: Tensor, shift: float) -> Tensor:
    """Move levels in [0, 1] toward the noisy end: ``s u / (1 + (s - 1) u)``."""
    return shift * levels / (1 + (shift - 1) * levels)


def training_levels(shape: tuple[int, ...], shift: float, generator: torch.Generator) -> Tensor:
    """Levels drawn from a logit-normal law, then shifted."""
    return shift_levels(torch.randn(shape, generator=generator).sigmoid(), shift)


def sampling_levels(steps: int, shift: float) -> Tensor:
    """The grid ``1 = sigma_0 > ... > sigma_steps = 0``, float32 ``[steps + 1]``."""
    return shift_levels(torch.linspace(1, 0, steps + 1), shift)


def add_noise(clean: Tensor, noise: Tensor, levels: Tensor) -> Tensor:
    """``x_sigma``; ``levels`` has the leading dimensions of ``clean`` and is broadcast over the others."""
    levels = levels.reshape(levels.shape + (1,) * (clean.ndim - levels.ndim))
    return (1 - levels) * clean + levels * noise
