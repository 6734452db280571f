"""``wp2 convert`` from the command line: what it writes, and one sentence for what it cannot."""

from __future__ import annotations

import re

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

from world_model.config import to_json
from world_model.large import Expert
from world_model.large.base_models import NEW, diffusers_name
from world_model.large.folder import load_large_world
from world_model.large.names import published_name, published_shape


@pytest.fixture
def tensors(large):
    """Random tensors of an expert under their published names."""
    torch.manual_seed(0)
    tensors = {}
    for ours, value in Expert(large).state_dict().items():
        name = published_name(ours)
        tensors[name] = torch.randn(published_shape(name, tuple(value.shape), 2))
    return tensors


def test_an_expert_arrives_in_our_layout_and_mistakes_get_one_sentence(wp2, large, tensors, tmp_path):
    save_file(tensors, tmp_path / "low.safetensors")
    (tmp_path / "toy.json").write_text(to_json(large))
    words = ["convert", tmp_path / "low.safetensors", tmp_path / "ours", "--config", tmp_path / "toy.json"]

    assert "with --expert" in wp2(*words, "--variant", "ar").error
    assert "head.block_bias" in wp2(*words, "--variant", "fast", "--expert", "low").error
    answer = wp2(*words, "--variant", "ar", "--expert", "low", "--dtype", "fp32")
    assert answer.code == 0 and "wrote the low-noise expert" in answer.out
    loaded = load_large_world(tmp_path / "ours", ["low"], torch.float32)["low"]
    assert torch.equal(loaded.transformer.head_modulation, tensors["head.modulation"][0])
    assert "already" in wp2(*words, "--variant", "ar", "--expert", "low").error
    assert "does not exist" in wp2("convert", tmp_path / "none", tmp_path / "b", "--variant", "ar").error
    (tmp_path / "toy.json").write_text('{"magic": 1}')
    assert "no setting 'magic'" in wp2(*words, "--variant", "ar").error
    (tmp_path / "toy.json").unlink()
    assert "toy.json: No such file" in wp2(*words, "--variant", "ar").error


def test_public_video_weights_come_from_the_hub_with_what_goes_beside_them(wp2, large, tensors, tmp_path, monkeypatch):
    asked, source, ours = [], tmp_path / "cache", tmp_path / "ours"
    for part in ("transformer", "transformer_2", "vae", "text_encoder", "tokenizer"):
        (source / part).mkdir(parents=True)
    wan = {diffusers_name(name): value for name, value in tensors.items() if not re.fullmatch(NEW, name)}
    for part in ("transformer", "transformer_2"):
        save_file(wan, source / part / "diffusion_pytorch_model.safetensors")

    def download(repository, *, revision, allow_patterns):
        asked.append((repository, allow_patterns))
        return str(source)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    (tmp_path / "toy.json").write_text(to_json(large))
    answer = wp2("convert", "org/wan", ours, "--config", tmp_path / "toy.json", "--variant", "base")
    assert answer.code == 0 and "linked vae, text_encoder, tokenizer of org/wan" in answer.out
    assert {name for name, _ in asked} == {"org/wan"} and "transformer_2/*.safetensors" in asked[0][1]
    assert set(load_large_world(ours)) == {"high", "low"}
    assert {file.name for file in ours.iterdir() if file.is_symlink()} == {"vae", "text_encoder", "tokenizer"}


def test_a_published_variant_has_two_experts(wp2, tmp_path):
    error = wp2("convert", tmp_path, tmp_path / "out", "--variant", "fast", "--preset", "wan2.1-1.3b").error
    assert "'fast' has two experts and wan2.1-1.3b one; give --preset worldplay2-14b, or --variant base" in error


def test_what_a_preset_has_not_and_what_the_hub_cannot_give_is_one_sentence(wp2, tmp_path, monkeypatch):
    words = ["--variant", "base", "--preset", "wan2.2-5b"]
    assert "no expert 'high'; choose only" in wp2("convert", tmp_path, tmp_path / "a", *words, "--expert", "high").error

    def fail(*given, **more):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert "could not be fetched from the hub (no network)" in wp2("convert", "org/wan", tmp_path / "a", *words).error
    assert "no Wan weights in diffusers' format" in wp2("convert", tmp_path, tmp_path / "a", *words).error
    assert not (tmp_path / "a").exists()
