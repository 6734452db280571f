"""Published weight files: what is read where, and what is said of a file that does not fit."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from world_model.large import Expert, load_expert
from world_model.large.few_step import fuse_bank
from world_model.large.weights import expert_files


def test_published_tensors_arrive_in_dtype_and_place(toy, published, tmp_path):
    save_file({f"module.model.{name}": value for name, value in published.items()}, tmp_path / "a.safetensors")
    expert = load_expert([tmp_path / "a.safetensors"], toy)
    assert not any(value.is_meta or value.requires_grad for value in expert.parameters())
    assert {value.dtype for value in expert.parameters()} == {torch.bfloat16}
    expert = load_expert([tmp_path / "a.safetensors"], toy, dtype=torch.float32)
    embedding = expert.transformer.patch_embedding
    latents = torch.randn(1, 1, 12, 4, 4)
    weight, bias = published["patch_embedding.weight"], published["patch_embedding.bias"]
    expected = torch.nn.functional.conv3d(latents.transpose(1, 2), weight, bias, stride=(1, 2, 2))
    torch.testing.assert_close(expert.transformer.embed_latents(latents), expected.flatten(2).transpose(1, 2))
    assert torch.equal(expert.transformer.head_modulation, published["head.modulation"][0])
    assert torch.equal(embedding.bias, bias)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("blocks.1.norm3.weight"), "1 missing .blocks.1.norm3.weight."),
        (lambda t: t.update(extra=torch.zeros(1)), "1 unknown .extra."),
        (lambda t: t.update({"head.head.bias": torch.zeros(3)}), r"head.head.bias is \[3\], not \[16\]"),
        (lambda t: [t.pop(name) for name in list(t) if "blocks" in name], "and [0-9]+ more"),
    ],
)
def test_tensors_that_do_not_fit_are_listed_by_their_published_names(toy, published, tmp_path, change, message):
    change(published)
    save_file(published, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=message) as caught:
        load_expert([tmp_path / "a.safetensors"], toy)
    assert str(caught.value).count("blocks.") <= 10


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".safetensors"])
def test_a_pickle_is_refused_unread(toy, published, tmp_path, suffix):
    torch.save(published, tmp_path / f"weights{suffix}")
    with pytest.raises(ValueError, match="safetensors"):
        load_expert([tmp_path / f"weights{suffix}"], toy)


@pytest.mark.parametrize("form", ["head.{}", "head.pdd_{}", "head.head.{}", None])
def test_few_step_heads_come_fused_or_one_per_interval(toy, published, tmp_path, form):
    bank = {"weight": torch.randn(56, 16, 16), "bias": torch.randn(56, 16)}
    for kind, value in bank.items():
        del published[f"head.head.{kind}"]
        name = form.format(kind) if form else f"head.block_{kind}"
        published[name] = value if form else fuse_bank(value, "high")
    save_file(published, tmp_path / "a.safetensors")
    expert = load_expert([tmp_path / "a.safetensors"], toy, few_step="high", dtype=torch.float32)
    torch.testing.assert_close(expert.transformer.head.weight, fuse_bank(bank["weight"], "high"))
    torch.testing.assert_close(expert.transformer.head.bias, fuse_bank(bank["bias"], "high"))
    if form:
        with pytest.raises(ValueError, match=r"is \[56, 16, 16\], not \[72, 16, 16\]"):
            load_expert([tmp_path / "a.safetensors"], toy, few_step="low")


def test_an_expert_s_files_are_found_in_every_published_layout(toy, published, tmp_path):
    names = sorted(published)
    parts = {"a-1.safetensors": names[:40], "a-2.safetensors": names[40:]}
    sharded = tmp_path / "sharded" / "high_noise_model"
    sharded.mkdir(parents=True)
    for file, some in parts.items():
        save_file({name: published[name] for name in some}, sharded / file)
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (sharded / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    folder = tmp_path / "whole" / "high_noise_model"
    folder.mkdir(parents=True)
    save_file(published, folder / "diffusion_pytorch_model.safetensors")
    save_file(published, tmp_path / "high_noise_model.safetensors")
    states = [
        load_expert(expert_files(place, "high"), toy).state_dict()
        for place in (sharded.parent, folder.parent, tmp_path)
    ]
    for state in states[1:]:
        assert all(torch.equal(state[name], states[0][name]) for name in state)
    with pytest.raises(FileNotFoundError, match="low-noise expert"):
        expert_files(tmp_path, "low")
    with pytest.raises(ValueError, match="both"):
        load_expert([tmp_path / "high_noise_model.safetensors"] * 2, toy)


def test_the_experts_differ_in_their_heads_alone(toy):
    plain, few = (dict(Expert(toy, few_step).state_dict()) for few_step in (False, True))
    assert {name for name in plain if few[name].shape != plain[name].shape} == {
        "transformer.head.weight",
        "transformer.head.bias",
    }
