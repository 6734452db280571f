"""The compressed history (Eq. 4): ``C(x, x_lr)`` turns every ``l`` past latents into one small slot of tokens.

Two branches are added. *Coarse*: the video at ``1/l`` of the frame rate and ``1/s`` of the height and width, through
the codec and the transformer's own patch embedding. *Fine*: a causal residual from the full-resolution latents, which
carries what the small picture lost. A slot looks at its own latents and the one before them, never ahead, so encoding
slot by slot equals encoding the whole history.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from world_model.codec import CausalCodec
from world_model.config import WorldConfig
from world_model.transformer import VelocityTransformer


class FineBranch(nn.Module):
    """Causal convolutions, then attention among the pixels of one slot, then the transformer's width."""

    def __init__(self, config: WorldConfig) -> None:
        super().__init__()
        self.stride = config.memory.temporal_stride
        first, second = config.memory.fine_widths
        shrink = config.transformer.patch * config.memory.spatial_stride
        if shrink & (shrink - 1):
            raise ValueError(f"patch times spatial stride is {shrink}; it must be a power of two")
        # One 3-D convolution of stride l along time whose kernel covers the slot and one latent before it; a slot has
        # one output in time, so it is written as a 2-D convolution over the l + 1 latents' channels.
        self.temporal = nn.Conv2d(config.codec.latent_channels * (self.stride + 1), first, 3, padding=1)
        widths = [first] + [second] * (shrink.bit_length() - 1)
        self.spatial = nn.ModuleList(nn.Conv2d(a, b, 3, 2, padding=1) for a, b in zip(widths, widths[1:], strict=False))
        self.norm = nn.LayerNorm(widths[-1])
        self.attention = nn.MultiheadAttention(widths[-1], config.memory.fine_heads, batch_first=True)
        self.out = nn.Linear(widths[-1], config.transformer.width)
        nn.init.normal_(self.out.weight, std=0.02)  # small, not zero: a closed gate would starve the branch
        nn.init.zeros_(self.out.bias)

    def forward(self, windows: Tensor) -> Tensor:
        """Latents ``[B, S, l + 1, C, h, w]`` of ``S`` slots to tokens ``[B, S, P, D]``."""
        batch, slots = windows.shape[:2]
        x = self.temporal(windows.flatten(2, 3).flatten(0, 1).to(self.out.weight.dtype))
        for layer in self.spatial:
            x = layer(functional.silu(x))
        x = x.flatten(2).transpose(1, 2)  # [B * S, P, channels]
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return self.out(functional.silu(x)).unflatten(0, (batch, slots))


class MemoryCompressor(nn.Module):
    """Both branches of ``C``."""

    def __init__(self, config: WorldConfig) -> None:
        super().__init__()
        self.stride = config.memory.temporal_stride
        self.fine = FineBranch(config)

    def forward(self, windows: Tensor, coarse_latents: Tensor, transformer: VelocityTransformer) -> Tensor:
        """Tokens ``[B, S * P, D]`` of ``S`` slots from their `slot_windows` and the coarse latents of the small video
        ``[B, S, C, h / s, w / s]`` (`coarse_view`)."""
        return transformer.embed_latents(coarse_latents) + self.fine(windows).flatten(1, 2)


def slot_windows(latents: Tensor, stride: int) -> Tensor:
    """What the fine branch sees of consecutive slots, ``[B, S, l + 1, C, h, w]``: their latents and the one before.

    ``latents [B, 1 + S * l, C, h, w]`` start with the latent before the first slot.
    """
    return latents.unfold(1, stride + 1, stride).movedim(-1, 2)


def coarse_view(frames: Tensor, config: WorldConfig, codec: CausalCodec) -> Tensor:
    """The coarse latent ``[B, C, h / s, w / s]`` of one slot from its frames ``[B, l * r, 3, H, W]`` in [-1, 1].

    Every ``l``-th frame is kept, the last one included, and shrunk ``s`` times by averaging.
    """
    stride, shrink = config.memory.temporal_stride, config.memory.spatial_stride
    kept = frames[:, stride - 1 :: stride]
    small = functional.avg_pool2d(kept.flatten(0, 1), shrink).unflatten(0, kept.shape[:2])
    return codec.encode(small, started=True)[:, 0]
