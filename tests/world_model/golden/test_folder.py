"""The golden experts through our own layout."""

from __future__ import annotations

import torch

from world_model.large.folder import LargeWorld, convert, load_large_world


def test_golden_experts_come_back_equal_from_our_layout(golden, tmp_path):
    for name in ("high", "low"):
        file = golden.file(f"weights_expert_{name}.safetensors")
        convert(file, tmp_path, LargeWorld(golden.config(), "ar"), (name,), torch.float32, shard_bytes=10**6)
    for name, expert in load_large_world(tmp_path, dtype=torch.float32).items():
        direct = golden.expert(name).state_dict()
        assert all(torch.equal(value, direct[key]) for key, value in expert.state_dict().items())
