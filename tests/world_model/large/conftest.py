"""The tensors of a large world of toy widths under their published names."""

from __future__ import annotations

import pytest
import torch

from world_model.large import Expert
from world_model.large.names import published_name, published_shape


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
