"""A large world of toy widths, and its tensors under their published names."""

from __future__ import annotations

import pytest
import torch

from world_model.config import CodecConfig, MemoryConfig, TextConfig, TransformerConfig, VideoConfig, WorldConfig
from world_model.large import Expert, LargeConfig
from world_model.large.names import published_name, published_shape


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


@pytest.fixture
def published(toy) -> dict[str, torch.Tensor]:
    """Random tensors as a published file of the toy world would hold them."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for ours, value in Expert(toy).state_dict().items():
        name = published_name(ours)
        shape = published_shape(name, tuple(value.shape), toy.world.transformer.patch)
        tensors[name] = torch.randn(shape, generator=generator) / max(1, value[0].numel()) ** 0.5
    return tensors
