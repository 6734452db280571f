"""A large world of toy widths, with experts that no weight at zero makes dull, and a codec that costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from world_model.config import CodecConfig, MemoryConfig, TextConfig, TransformerConfig, VideoConfig, WorldConfig
from world_model.large import Expert, LargeConfig
from world_model.large.folder import LargeWorld


class Blocks:
    """A codec of 4x in time and 8x in space that averages and repeats; its state is how many frames there were."""

    def encode(self, frames: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        first = frames[:, :1] if state is None else frames[:, :0]
        rest = frames[:, first.shape[1] :]
        rest = rest[:, : rest.shape[1] // 4 * 4].unflatten(1, (-1, 4)).mean(2)
        latents = torch.cat([first, rest], dim=1).unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).mean((-1, -3))
        return latents[:, :, [0, 1, 2, 0]], [frames.shape[1]]

    def decode(self, latents: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        frames = latents[:, :, :3].repeat_interleave(8, 3).repeat_interleave(8, 4)
        frames = frames.repeat_interleave(4, 1)
        return (frames[:, 3:] if state is None else frames).clamp(-1, 1), [latents.shape[1]]


@pytest.fixture(scope="session")
def blocks() -> Blocks:
    return Blocks()


@pytest.fixture(scope="session")
def toy() -> LargeConfig:
    return LargeConfig(
        WorldConfig(
            name="toy",
            chunk_latents=4,
            video=VideoConfig(height=64, width=64),
            codec=CodecConfig(latent_channels=4, temporal_factor=4),
            text=TextConfig(width=8),
            transformer=TransformerConfig(
                width=16, depth=2, heads=2, ffn_width=24, frequency_width=8, action_widths=(4, 4), camera_scale=1.0
            ),
            memory=MemoryConfig(adjacent_latents=1, spatial_stride=4),
        ),
        text_tokens=4,
        condition_channels=8,
        fine_widths=(4, 4, 8, 8, 8, 8, 16),
    )


@pytest.fixture(scope="session")
def single(toy) -> LargeConfig:
    """The same with one expert for all noise levels, which is given the start picture as a latent, too."""
    return replace(toy, experts=("only",), clean_picture=True)


@pytest.fixture(scope="session")
def lively_experts() -> Callable[[LargeWorld], dict[str, Expert]]:
    """Random experts of a world in which everything that goes in changes what comes out."""

    def build(world: LargeWorld) -> dict[str, Expert]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            experts = {name: Expert(world.config, world.few_step).eval() for name in world.config.experts}
            for expert in experts.values():
                for value in expert.requires_grad_(False).parameters():
                    value += torch.randn(value.shape) * (0.3 if value.ndim < 2 else 1 / value[0].numel() ** 0.5)
        return experts

    return build
