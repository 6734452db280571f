"""The convolutions with which agents look at small pictures: a quarter of `NatureCNN`'s arithmetic."""

from __future__ import annotations

import torch
from torch import nn

WIDTHS = (16, 32, 32)  # channels after each
FEATURES = 128  # of the layer that gathers what they see


def convolutions(channels: int, size: tuple[int, int]) -> tuple[nn.Sequential, int]:
    """Layers that take pictures ``[B, channels, *size]`` in [0, 1] to features ``[B, n]``, and n."""
    first, second, third = WIDTHS
    layers = nn.Sequential(
        nn.Conv2d(channels, first, kernel_size=4, stride=4), nn.ReLU(),
        nn.Conv2d(first, second, kernel_size=4, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(second, third, kernel_size=3, padding=1), nn.ReLU(),
        nn.Flatten(),
    )  # fmt: skip
    with torch.no_grad():
        return layers, layers(torch.zeros(1, channels, *size)).shape[1]
