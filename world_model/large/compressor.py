"""The history compressor of the published model: 8x in height and width, 2x in time, causal.

``token_j = coarse_j + fine_j``. *Coarse* is the transformer's own patch embedding of the small video's latents; *fine*
is this network over the full latents: ``x -> resample(silu(conv(x))) + shortcut(x)`` six times, then attention among
the positions of one frame. Token ``j`` sees latents ``2j - 24 .. 2j + 1`` and none after them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.large.config import LargeConfig

TEMPORAL_STRIDE = 2  # latents per compressed token
REACH = 26  # latents, the last of its own included, that a fine token depends on


def causal_conv(channels: int, out: int) -> nn.Conv3d:
    """A 3x3x3 convolution of the spatial padding 1; `_pad_past` pads its time."""
    return nn.Conv3d(channels, out, 3, padding=(0, 1, 1))


def _pad_past(x: Tensor) -> Tensor:
    """Two zero frames before ``[B, C, T, h, w]``."""
    return functional.pad(x, (0, 0, 0, 0, 2, 0))


def folded_mean(x: Tensor, out: int, time: int, space: int) -> Tensor:
    """Resample without parameters: ``[B, C, T, h, w]`` to ``[B, out, T / time, h / space, w / space]``.

    Every cell of ``time * space * space`` values moves to the channels, which are then averaged in ``out`` groups.
    """
    batch, channels, frames, height, width = x.shape
    cells = x.reshape(batch, channels, frames // time, time, height // space, space, width // space, space)
    cells = cells.permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(1, 4)  # channels, dt, dy, dx with dx fastest
    return cells.unflatten(1, (out, -1)).mean(2)


class Stage(nn.Module):
    """A residual stage that keeps the size: ``silu(conv(x)) + shortcut(x)``."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv = causal_conv(channels, out)
        self.shortcut = nn.Conv3d(channels, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.conv(_pad_past(x))) + self.shortcut(x)


class DownStage(nn.Module):
    """A residual stage that halves height and width, and time too with ``halve_time``."""

    def __init__(self, channels: int, out: int, halve_time: bool) -> None:
        super().__init__()
        self.conv = causal_conv(channels, out)
        self.resample = nn.Conv2d(out, out, 3, 2)
        self.time_conv = nn.Conv3d(out, out, (3, 1, 1), (2, 1, 1)) if halve_time else None

    def forward(self, x: Tensor) -> Tensor:
        change = functional.silu(self.conv(_pad_past(x)))
        frames = functional.pad(change.transpose(1, 2), (0, 1, 0, 1))  # one row and column at the far ends
        change = self.resample(frames.flatten(0, 1)).unflatten(0, frames.shape[:2]).transpose(1, 2)
        time = 1
        if self.time_conv is not None:
            change, time = self.time_conv(_pad_past(change)), TEMPORAL_STRIDE
        return change + folded_mean(x, change.shape[1], time, 2)


class FrameAttention(nn.Module):
    """Residual attention among the positions of each frame of ``[B, C, T, h, w]``."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.gain = nn.Parameter(torch.ones(channels, 1, 1))
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        frames = x.transpose(1, 2).flatten(0, 1)  # [B * T, C, h, w]
        normed = functional.normalize(frames, dim=1) * frames.shape[1] ** 0.5 * self.gain
        query, key, value = (
            part.unflatten(1, (self.heads, -1)).flatten(3).transpose(2, 3) for part in self.qkv(normed).chunk(3, dim=1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        frames = frames + self.proj(attended.transpose(2, 3).flatten(1, 2).unflatten(2, frames.shape[2:]))
        return frames.unflatten(0, (x.shape[0], -1)).transpose(1, 2)


class HistoryCompressor(nn.Module):
    """The fine branch."""

    def __init__(self, config: LargeConfig) -> None:
        super().__init__()
        widths = config.fine_widths
        pairs = list(zip(widths, widths[1:], strict=False))
        self.input = nn.Linear(config.input_channels, widths[0])
        self.blocks = nn.Sequential(
            *(DownStage(*pair, halve_time=index == 0) for index, pair in enumerate(pairs[:3])),
            *(Stage(*pair) for pair in pairs[3:]),
        )
        self.attention = nn.Sequential(*(FrameAttention(widths[-1], config.fine_heads) for _ in range(2)))
        self.output = nn.Linear(widths[-1], config.world.transformer.width)
        nn.init.zeros_(self.output.weight)  # training starts from the coarse branch alone
        nn.init.zeros_(self.output.bias)

    def forward(self, history: Tensor) -> Tensor:
        """Conditioned latents ``[B, T, 16 + 20, h, w]`` with even ``T`` to tokens ``[B, T / 2 * P, D]``."""
        history = history.movedim(2, -1).to(self.input.weight.dtype)
        x = self.input(history).movedim(-1, 1)  # [B, C, T, h, w]
        x = self.attention(self.blocks(x))
        return self.output(x.movedim(1, -1)).flatten(1, 3)
