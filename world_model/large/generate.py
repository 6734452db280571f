"""From a picture, action rows and captions to video, one chunk after the other, with the published settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial

import torch
from torch import Tensor

from world_model.large.conditioning import (
    StreamingCodec,
    condition_volume,
    shrunk,
    small_video,
    start_picture,
    video_uint8,
)
from world_model.large.config import SINGLE, LargeConfig
from world_model.large.expert import Expert
from world_model.large.rollout import Guidance, LargeRollout, few_step_chunk, solved_chunk
from world_model.solvers import UniPC

CHUNKS = {"bi": 32, "base": 20}  # latents at once, whatever the configuration says; Wan's own clips have 21
GUIDANCE = {"high": 3.5, "low": 3.5, SINGLE: 5.0}
STEPS, SHIFT = 40, 5.0  # of the models that were not distilled
Fresh = Callable[[], Tensor]  # new noise of the shape of a chunk
NEGATIVE = (  # Wan's own negative caption
    "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，最差质量，低质量，JPEG压缩残留，"
    "丑陋的，残缺的，多余的手指，画得不好的手部，画得不好的脸部，畸形的，毁容的，形态畸形的肢体，手指融合，静止不动的画面，"
    "杂乱的背景，三条腿，背景人很多，倒着走"
)


def chunk_latents(config: LargeConfig, variant: str) -> int:
    """Latents that a published variant generates at once."""
    return CHUNKS.get(variant, config.world.chunk_latents)


def start_rollout(
    experts: Mapping[str, Expert], variant: str, encode: Callable[[str], Tensor], condition: Tensor, small: Tensor
) -> LargeRollout:
    """A rollout as a variant wants it; ``condition`` and ``small`` are as `LargeRollout` takes them, and ``encode``
    makes tokens ``[1, L, X]`` of the negative caption of those that are guided."""
    guidance = None if variant == "fast" else Guidance(encode(NEGATIVE), GUIDANCE)
    return LargeRollout(experts, condition, small, variant in CHUNKS, guidance)


def make_chunk(
    variant: str, steps: int, rollout: LargeRollout, noise: Tensor, rows: Tensor, text: Tensor, fresh: Fresh
) -> Tensor:
    """The next chunk ``[B, n, 16, h, w]``, like its ``noise``; only those that are not "fast" have ``steps``."""
    if variant == "fast":
        return few_step_chunk(rollout, noise, rows, text, fresh)
    return solved_chunk(rollout, noise, rows, text, UniPC(steps, SHIFT))


@torch.no_grad()
def generate(
    experts: Mapping[str, Expert],
    variant: str,
    codec: StreamingCodec,
    encode: Callable[[str], Tensor],
    image: Tensor,
    rows: Tensor,
    captions: Sequence[str],
    seed: int = 0,
    steps: int = STEPS,
) -> Iterator[Tensor]:
    """Yield the frames of each chunk, uint8 ``[F, 3, H, W]``: 13 of the first, since its first latent is one frame,
    then 16, for chunks of 4 latents.

    ``variant`` is one of `folder.VARIANTS`; ``image`` is uint8 ``[3, h, w]``, ``rows [T, 6]`` the actions, and
    ``captions`` has one text for each chunk, of which ``encode`` makes tokens ``[L, X]``. Noise is drawn on the CPU,
    the volume of all latents first and then what the few-step model adds, so a seed means the same on every device.
    """
    expert = next(iter(experts.values()))
    config, device = expert.config, expert.transformer.patch_embedding.weight.device
    total, chunk = len(rows), len(rows) // len(captions)
    picture = start_picture(image.to(device), config.world.video.height, config.world.video.width)
    condition = condition_volume(codec, picture, total)
    small_condition = condition_volume(codec, shrunk(picture), total // 2)
    tokens = cache(lambda caption: encode(caption)[None].to(device))
    rollout = start_rollout(experts, variant, tokens, condition, small_condition)
    draw = partial(draw_noise, config.world.latent_shape, torch.Generator().manual_seed(seed), device)
    volume, rows = draw(total), rows[None].to(device)
    encoder = decoder = None
    for index, caption in enumerate(captions):
        part = slice(index * chunk, (index + 1) * chunk)
        given = volume[:, part], rows[:, part], tokens(caption)
        latents = make_chunk(variant, steps, rollout, *given, fresh=partial(draw, chunk))
        frames, decoder = codec.decode(latents, decoder)
        yield video_uint8(frames[0])
        if part.stop < total:
            small, encoder = codec.encode(small_video(frames), encoder)
            rollout.commit(latents, small, rows[:, part], tokens(caption))


def draw_noise(shape: tuple[int, int, int], generator: torch.Generator, device: torch.device, latents: int) -> Tensor:
    """Noise ``[1, latents, C, h, w]``, drawn in the published order, channels first."""
    channels, height, width = shape
    return torch.randn(channels, latents, height, width, generator=generator).transpose(0, 1)[None].to(device)
