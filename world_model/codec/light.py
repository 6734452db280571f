"""A light decoder (and encoder) for the latents of the large worlds, in the layout of the published light VAE.

It is of the family of tiny autoencoders with memory blocks: every layer works within a frame, but for `MemoryBlock`,
which sees the frame before, `Pool`, which merges neighbours, and `Grow`, which splits a frame in time. 4x in time, 8x
in space; the first latent is one frame, so T latents are 4 T - 3 frames. Latents go in as the transformer makes them,
without a mean or a scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

State = list[Tensor]  # the last frame that each memory block saw
PARTS = ("enc.", "dec.")  # what the published names begin with


@dataclass(frozen=True)
class LightCodecConfig:
    """Widths of the published light VAE."""

    latent_channels: int = 16
    encoder_width: int = 64
    decoder_widths: tuple[int, int, int, int] = (256, 128, 64, 64)
    pool_strides: tuple[int, int, int] = (2, 2, 1)  # along time
    grow_strides: tuple[int, int, int] = (1, 2, 2)
    blocks: int = 3  # memory blocks per stage


class SoftClamp(nn.Module):
    """Latents squeezed into (-3, 3)."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * torch.tanh(x / 3)


class MemoryBlock(nn.Module):
    """Three convolutions over a frame and the one before it, added to the frame; before the first there is zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Frames ``[B, T, C, H, W]`` and the one before them to frames and the new past."""
        past = torch.zeros_like(x[:, 0]) if past is None else past
        both = torch.cat([x, torch.cat([past[:, None], x[:, :-1]], dim=1)], dim=2)
        return functional.relu(_per_frame(self.conv, both) + x), x[:, -1]


class Pool(nn.Module):
    """Merge ``stride`` frames into one, the earlier ones first; an odd number gets a zero frame before it."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(width * stride, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        missing = -x.shape[1] % self.stride
        x = torch.cat([x.new_zeros(x.shape[0], missing, *x.shape[2:]), x], dim=1)
        return _per_frame(self.conv, x.unflatten(1, (-1, self.stride)).flatten(2, 3))


class Grow(nn.Module):
    """Split every frame into ``stride`` frames; where there is a split, a clip's first frame stays one, as it is."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(width, width * stride, 1, bias=False)

    def forward(self, x: Tensor, at_start: bool) -> Tensor:
        first = int(at_start and self.stride > 1)
        kept, rest = x[:, :first], x[:, first:]
        if rest.shape[1]:
            rest = _per_frame(self.conv, rest).unflatten(2, (self.stride, -1)).flatten(1, 2)
        return torch.cat([kept, rest], dim=1)


class LightCodec(nn.Module):
    """Frames ``[B, F, 3, H, W]`` in [-1, 1] to latents ``[B, T, C, H / 8, W / 8]`` and back, piece by piece.

    Both directions take and return a state; passing None starts a new video.
    """

    def __init__(self, config: LightCodecConfig | None = None) -> None:
        super().__init__()
        config = config or LightCodecConfig()
        width = config.encoder_width
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
        for stride in config.pool_strides:
            layers += [Pool(width, stride), nn.Conv2d(width, width, 3, 2, padding=1, bias=False)]
            layers += [MemoryBlock(width) for _ in range(config.blocks)]
        self.encoder = nn.ModuleList([*layers, nn.Conv2d(width, config.latent_channels, 3, padding=1)])

        widths = config.decoder_widths
        layers = [SoftClamp(), nn.Conv2d(config.latent_channels, widths[0], 3, padding=1), nn.ReLU()]
        for width, then, stride in zip(widths, widths[1:], config.grow_strides, strict=False):
            layers += [MemoryBlock(width) for _ in range(config.blocks)]
            layers += [nn.Upsample(scale_factor=2), Grow(width, stride)]
            layers += [nn.Conv2d(width, then, 3, padding=1, bias=False)]
        self.decoder = nn.ModuleList([*layers, nn.ReLU(), nn.Conv2d(widths[-1], 3, 3, padding=1)])

    def encode(self, frames: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Latents of frames, and the state for the frames after them."""
        return _run(self.encoder, (frames + 1) / 2, state)

    def decode(self, latents: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Frames of latents, and the state for the latents after them."""
        frames, state = _run(self.decoder, latents, state)
        return frames.clamp(0, 1) * 2 - 1, state


def published_name(name: str) -> str:
    """The name of a `LightCodec` tensor in a published file."""
    return f"{name[:3]}.{name}"


def _run(layers: nn.ModuleList, x: Tensor, state: State | None) -> tuple[Tensor, State]:
    left = None if state is None else list(state)
    kept: State = []
    for layer in layers:
        if isinstance(layer, MemoryBlock):
            x, past = layer(x, left.pop(0) if left else None)
            kept.append(past)
        elif isinstance(layer, Grow):
            x = layer(x, at_start=state is None)
        elif isinstance(layer, Pool):
            x = layer(x)
        else:
            x = _per_frame(layer, x)
    return x, kept


def _per_frame(module: nn.Module, x: Tensor) -> Tensor:
    """Apply an image module to every frame of ``[B, T, C, H, W]``."""
    return module(x.flatten(0, 1)).unflatten(0, x.shape[:2])
