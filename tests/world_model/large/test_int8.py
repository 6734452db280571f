"""Weights of 8 bits: how far off they are, which layers have them, and that no second copy is ever in memory."""

from __future__ import annotations

import weakref

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from world_model.acceleration.quantised import LARGEST, Int8Linear
from world_model.config import to_json
from world_model.large.denoise import evaluate
from world_model.large.folder import LargeWorld, load_large_world
from world_model.large.tensor_files import TensorFiles


@pytest.fixture
def folder(single, lively_experts, tmp_path):
    """A world of one expert in our own layout, in float32."""
    large = LargeWorld(single, "ar")
    (expert,) = lively_experts(large).values()
    names = sorted(expert.state_dict())
    for shard, some in enumerate((names[::2], names[1::2])):
        save_file({name: expert.state_dict()[name] for name in some}, tmp_path / f"only-{shard}.safetensors")
    (tmp_path / "config.json").write_text(to_json(large))
    return tmp_path


def load(folder, **options):
    return load_large_world(folder, dtype=torch.float32, **options)["only"]


def test_a_weight_is_off_by_half_a_step_of_its_row_at_most():
    weight = torch.randn(6, 40) * torch.tensor([1e-6, 1e-3, 1, 10, 1e4, 0])[:, None]
    layer = Int8Linear(weight, nn.Parameter(torch.randn(6), requires_grad=False))
    steps = weight.abs().amax(1, keepdim=True) / LARGEST
    assert ((layer.weight - weight).abs() <= steps * 0.5001).all() and layer.codes.dtype == torch.int8
    x = torch.randn(3, 40)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_an_expert_of_8_bits_stays_near_the_exact_one(folder):
    exact, small = load(folder), load(folder, int8=True)
    generator = torch.Generator().manual_seed(0)
    x, rows, text = (torch.randn(shape, generator=generator) for shape in ((1, 4, 12, 8, 8), (1, 4, 6), (1, 3, 8)))
    with torch.no_grad():
        (wanted,), (found,) = (evaluate(expert, x, 500.0, 0, rows, text) for expert in (exact, small))
    error = ((found - wanted).norm() / wanted.norm()).item()
    assert 0 < error < 0.02


def test_only_the_blocks_have_8_bits_and_nothing_is_left_out(folder):
    expert = load(folder, int8=True)
    layers = [name for name, module in expert.named_modules() if isinstance(module, Int8Linear)]
    plain = [name for name, module in expert.named_modules() if isinstance(module, nn.Linear)]
    assert len(layers) == 2 * 12 and all(".blocks." in name for name in layers)  # q, k, v, o twice; ffn; action
    assert plain and not any(".transformer.blocks." in f".{name}" for name in plain)
    tensors = [*expert.parameters(), *expert.buffers()]
    assert not any(value.is_meta or value.requires_grad for value in tensors)


@pytest.mark.parametrize(
    ("options", "most"),
    [({"int8": True}, 1), ({"dtype": torch.bfloat16}, 1), ({}, 24)],  # the last keeps what it reads: 12 for each block
)
def test_a_weight_as_it_is_stored_is_gone_before_the_next_is_read(folder, monkeypatch, options, most):
    stored, counts, read = [], [], TensorFiles.__getitem__

    def follow(source, name):
        counts.append(sum(storage() is not None for storage in stored))
        value = read(source, name)
        if ".blocks." in name and name.endswith("weight") and value.ndim == 2 and "transformer" in name:
            stored.append(weakref.ref(value.untyped_storage()))
        return value

    monkeypatch.setattr(TensorFiles, "__getitem__", follow)
    kept = load_large_world(folder, **{"dtype": torch.float32, **options})
    assert kept and len(stored) == 24
    assert max(counts) <= most and (options or max(counts) == most)
