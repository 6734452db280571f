"""The bundled codec: a light causal video autoencoder, 8x smaller in space and 1x or 4x in time.

Every layer that looks along time looks only backwards, one frame, through a `MemoryBlock`; what it needs of the
past travels in an explicit state, so that coding a video piece by piece equals coding it whole. With a temporal
factor of 4 the first frame is a latent of its own (it fills its group alone), as in the large video codecs:
F frames give 1 + (F - 1) / 4 latents.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.config import CodecConfig

State = list[Tensor]  # one past frame of features for each layer that looks back


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions within one frame."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:  # [N, C, H, W]
        return x + self.conv2(functional.silu(self.conv1(functional.silu(x))))


class MemoryBlock(nn.Module):
    """A residual block that also sees the same features one frame earlier."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features ``x [B, T, C, H, W]`` and the frame before them (None: there is none) to features and new past."""
        past = torch.zeros_like(x[:, 0]) if past is None else past.to(x.dtype)
        before = torch.cat([past[:, None], x[:, :-1]], dim=1)
        both = torch.cat([x, before], dim=2).flatten(0, 1)
        change = self.conv2(functional.silu(self.conv1(functional.silu(both))))
        return x + change.unflatten(0, x.shape[:2]), x[:, -1]


def _per_frame(module: nn.Module, x: Tensor) -> Tensor:
    """Apply an image module to every frame of ``[B, T, C, H, W]``."""
    return module(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class CausalCodec(nn.Module):
    """Frames ``[B, F, 3, H, W]`` in [-1, 1] to latents ``[B, T, C, H/8, W/8]`` of about zero mean and unit variance.

    ``encode`` and ``decode`` take and return a state; passing None starts a new video. Coding frame by frame with
    the state equals coding the whole video at once.
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        if config.temporal_factor not in (1, 4):
            raise ValueError(f"temporal_factor is {config.temporal_factor}; the causal codec has 1 and 4")
        if config.spatial_factor != 8:
            raise ValueError(f"spatial_factor is {config.spatial_factor}; the causal codec has 8")
        self.config = config
        self.temporal_factor = config.temporal_factor
        half, quarter, eighth = config.widths
        group = config.temporal_factor
        counts = config.encoder_blocks
        self.encoder_half = nn.Sequential(
            nn.PixelUnshuffle(2), nn.Conv2d(12, half, 3, padding=1), *(ResidualBlock(half) for _ in range(counts[0]))
        )
        self.encoder_quarter = nn.Sequential(
            nn.Conv2d(half, quarter, 3, 2, padding=1), *(ResidualBlock(quarter) for _ in range(counts[1]))
        )
        self.encoder_eighth = nn.Conv2d(quarter, eighth, 3, 2, padding=1)
        self.gather = nn.Conv2d(eighth * group, eighth, 1)  # the frames of one latent become one
        self.encoder_deep = nn.Sequential(*(ResidualBlock(eighth) for _ in range(counts[2])))
        self.to_moments = nn.Conv2d(eighth, 2 * config.latent_channels, 3, padding=1)

        counts = config.decoder_blocks
        self.from_latent = nn.Conv2d(config.latent_channels, eighth, 3, padding=1)
        self.decoder_eighth_memory = MemoryBlock(eighth)
        self.decoder_eighth = nn.Sequential(*(ResidualBlock(eighth) for _ in range(counts[2])))
        self.spread = nn.Conv2d(eighth, eighth * group, 1)  # one latent becomes its frames
        self.up_quarter = nn.Sequential(nn.Conv2d(eighth, 4 * quarter, 1), nn.PixelShuffle(2))
        self.decoder_quarter_memory = MemoryBlock(quarter)
        self.decoder_quarter = nn.Sequential(*(ResidualBlock(quarter) for _ in range(counts[1] - 1)))
        self.up_half = nn.Sequential(nn.Conv2d(quarter, 4 * half, 1), nn.PixelShuffle(2))
        self.decoder_half = nn.Sequential(
            *(ResidualBlock(half) for _ in range(counts[0])),
            nn.SiLU(),
            nn.Conv2d(half, 12, 3, padding=1),
            nn.PixelShuffle(2),
        )
        self.register_buffer("latent_mean", torch.zeros(config.latent_channels))
        self.register_buffer("latent_std", torch.ones(config.latent_channels))

    def moments(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance ``[B, T, C, h, w]`` of the raw latents of a whole video ``[B, F, 3, H, W]``.

        Raises:
            ValueError: when F is not 1 + a multiple of the temporal factor, or H or W no multiple of 8.
        """
        if frames.shape[-1] % 8 or frames.shape[-2] % 8:
            raise ValueError(f"frames of {frames.shape[-2]}x{frames.shape[-1]} are not multiples of 8; resize them")
        return self._moments(self._with_first_group(frames))

    def encode(self, frames: Tensor, started: bool = False) -> Tensor:
        """Normalised latents ``[B, T, C, h, w]``; ``started`` says that frames continue a video (whole groups)."""
        mean, _ = self._moments(frames) if started else self.moments(frames)
        return (mean - self._channels(self.latent_mean)) / self._channels(self.latent_std)

    def decode(self, latents: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Frames in [-1, 1] from normalised latents ``[B, T, C, h, w]``, and the state for the frames after them."""
        raw = latents * self._channels(self.latent_std) + self._channels(self.latent_mean)
        return self.decode_raw(raw, state)

    def decode_raw(self, raw: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """As `decode`, from latents that were not normalised (what codec training works on)."""
        past_eighth, past_quarter = (None, None) if state is None else state
        x = _per_frame(self.from_latent, raw.to(self.spread.weight.dtype))
        x, past_eighth = self.decoder_eighth_memory(x, past_eighth)
        x = _per_frame(self.decoder_eighth, x)
        x = _per_frame(self.spread, x)
        x = x.unflatten(2, (self.temporal_factor, -1)).flatten(1, 2)
        x = _per_frame(self.up_quarter, x)
        x, past_quarter = self.decoder_quarter_memory(x, past_quarter)
        x = _per_frame(self.up_half, _per_frame(self.decoder_quarter, x))
        frames = _per_frame(self.decoder_half, x).float()
        if state is None:  # the first group is one frame, see `_with_first_group`
            frames = frames[:, self.temporal_factor - 1 :]
        return frames, [past_eighth, past_quarter]

    def observe(self, mean: Tensor, momentum: float) -> None:
        """Move the normalisation toward the statistics of raw latents ``mean [B, T, C, h, w]``."""
        flat = mean.detach().float().transpose(2, 1).transpose(1, 0).flatten(1)
        self.latent_mean.lerp_(flat.mean(1), momentum)
        self.latent_std.lerp_(flat.std(1).clamp_min(1e-3), momentum)

    def _moments(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        if frames.shape[1] % self.temporal_factor:
            raise ValueError(
                f"{frames.shape[1]} frames are no whole number of groups of {self.temporal_factor}; "
                f"give 1 + a multiple of {self.temporal_factor} at the start of a video, a multiple after it"
            )
        x = _per_frame(self.encoder_half, frames.to(self.gather.weight.dtype))
        x = _per_frame(self.encoder_eighth, _per_frame(self.encoder_quarter, x))
        x = x.unflatten(1, (-1, self.temporal_factor)).flatten(2, 3)
        x = _per_frame(self.encoder_deep, _per_frame(self.gather, x))
        mean, log_variance = _per_frame(self.to_moments, x).chunk(2, dim=2)
        return mean.float(), log_variance.float().clamp(-20, 4)

    def _with_first_group(self, frames: Tensor) -> Tensor:
        """The first frame, repeated until it fills a group."""
        return torch.cat([frames[:, :1]] * (self.temporal_factor - 1) + [frames], dim=1)

    @staticmethod
    def _channels(values: Tensor) -> Tensor:
        return values[None, None, :, None, None]


def to_unit(frames: Tensor) -> Tensor:
    """uint8 frames ``[..., H, W, 3]`` to float ``[..., 3, H, W]`` in [-1, 1]."""
    return frames.movedim(-1, -3).float() / 127.5 - 1


def to_uint8(frames: Tensor) -> Tensor:
    """Float frames ``[..., 3, H, W]`` in [-1, 1] to uint8 ``[..., H, W, 3]``."""
    return ((frames.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).movedim(-3, -1).contiguous()
