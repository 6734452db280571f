"""The start picture as the published models are given it, and the small video of the history.

Every latent carries 20 channels besides its own: a mask of 4 that is 1 at the first latent alone, and the 16 latent
channels of a video that is the picture followed by mid-grey frames.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

FRAMES_PER_LATENT = 4
MASK_CHANNELS = 4
SHRINK = 4  # of the small video, in height and width
FRAME_STRIDE = 2  # of the small video, in time


class StreamingCodec(Protocol):
    """What a large world needs of a codec: both directions with a state, None at the start of a video."""

    def encode(self, frames: Tensor, state: list | None = None) -> tuple[Tensor, list]: ...

    def decode(self, latents: Tensor, state: list | None = None) -> tuple[Tensor, list]: ...


def start_picture(image: Tensor, height: int, width: int) -> Tensor:
    """uint8 ``[3, h, w]`` to ``[3, H, W]`` in about [-1, 1]: resized to exactly that size, bicubic, not clamped."""
    unit = image[None].float() / 255 * 2 - 1
    return functional.interpolate(unit, (height, width), mode="bicubic", align_corners=False)[0]


def shrunk(frames: Tensor) -> Tensor:
    """Frames ``[..., 3, H, W]`` at a quarter of their height and width, bilinear without smoothing."""
    small = functional.interpolate(
        frames.flatten(0, -4) if frames.ndim > 3 else frames[None],
        (frames.shape[-2] // SHRINK, frames.shape[-1] // SHRINK),
        mode="bilinear",
        align_corners=False,
    )
    return small.reshape(*frames.shape[:-2], *small.shape[-2:])


def small_video(frames: Tensor) -> Tensor:
    """The frames of one chunk ``[B, F, 3, H, W]`` that its small video keeps: every second from the first, shrunk."""
    return shrunk(frames[:, ::FRAME_STRIDE])


def chunk_frames(latents: int, first: bool) -> int:
    """The frames of a chunk of so many latents; the first latent of a video is one frame."""
    return FRAMES_PER_LATENT * latents - (FRAMES_PER_LATENT - 1 if first else 0)


def condition_volume(codec: StreamingCodec, picture: Tensor, latents: int) -> Tensor:
    """The conditioning ``[1, latents, 20, h, w]`` of a rollout of ``latents`` latents from a picture ``[3, H, W]``.

    The small video's is made of ``shrunk(picture)`` and half as many latents.
    """
    return Picture(picture).condition(codec, latents)[0]


@dataclass(frozen=True)
class Picture:
    """The start picture of a rollout whose length nobody knows yet: its `condition_volume` piece by piece.

    ``pixels`` are ``[3, H, W]``. A picture that is not ``known`` is that of a rollout from its caption alone: grey
    pixels, and a mask that is 0 everywhere, which public text-to-video weights, having no such channels, do not mind.
    """

    pixels: Tensor
    known: bool = True
    state: list | None = None  # of the codec, after the pieces so far

    def condition(self, codec: StreamingCodec, latents: int) -> tuple[Tensor, Picture]:
        """The next ``latents`` latents of conditioning ``[1, latents, 20, h, w]``, and what gives those after them."""
        begins = self.state is None
        video = self.pixels.new_zeros(1, chunk_frames(latents, begins), *self.pixels.shape)
        if begins:
            video[0, 0] = self.pixels
        encoded, state = codec.encode(video, self.state)
        mask = encoded.new_zeros(1, latents, MASK_CHANNELS, *encoded.shape[-2:])
        mask[:, 0] = float(begins and self.known)
        return torch.cat([mask, encoded], dim=2), replace(self, state=state)


def video_uint8(frames: Tensor) -> Tensor:
    """Frames in [-1, 1] to uint8 as published, cut and not rounded."""
    return ((frames + 1) * 127.5).clamp(0, 255).to(torch.uint8)
