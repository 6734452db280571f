"""Large worlds through `load_world`: the same call as for any other world, and what is said when a part is missing."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from world_model.acceleration.quantised import Int8Linear
from world_model.checkpoint import load_world
from world_model.config import to_json
from world_model.large import LARGE_PRESETS, world
from world_model.large.folder import LargeWorld
from world_model.large.swapping import SwappedExperts


@pytest.fixture
def folder(toy, lively_experts, tmp_path):
    large = LargeWorld(toy, "ar")
    for name, expert in lively_experts(large).items():
        save_file(expert.state_dict(), tmp_path / f"{name}-00001.safetensors")
    (tmp_path / "config.json").write_text(to_json(large))
    return tmp_path


@pytest.fixture
def companions(monkeypatch, blocks):
    """Stands in for Wan's autoencoder and umT5, and remembers where they were looked for."""
    places = []
    monkeypatch.setattr(world, "open_codec", lambda place, device: places.append(place) or blocks)
    monkeypatch.setattr(world, "open_text", lambda *given: places.extend(given[:2]) or (lambda text: torch.ones(2, 8)))
    return places


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_large_world_is_loaded_like_any_other(folder, companions, dtype):
    loaded = load_world(str(folder), dtype=dtype)
    assert loaded.name == "toy" and loaded.path == folder and loaded.config.video.height == 64
    assert [place.name for place in companions] == ["vae", "text_encoder", "tokenizer"]
    assert {place.parent for place in companions} == {folder}
    network = loaded.experts["low"].transformer
    assert network.head.weight.dtype == (torch.float32 if dtype == "float32" else torch.bfloat16)
    assert isinstance(network.blocks[0].ffn[0], Int8Linear) == (dtype == "int8")
    assert [name for name, _ in loaded.named_children()] == ["high", "low"]
    assert loaded.stream(2, sampling_steps=1).frame_shape == (64, 64, 3) and loaded.evaluations == 40


def test_experts_swap_on_request(folder, companions):
    experts = world.open_large_world(folder, swap=True).experts
    assert isinstance(experts, SwappedExperts) and experts.moves == 0 and experts["low"] is experts["low"]


def test_missing_parts_and_unknown_precisions_are_one_sentence(folder, companions, monkeypatch):
    with pytest.raises(ValueError, match="'float8'; choose one of bfloat16, float32, int8"):
        load_world(folder, dtype="float8")
    (folder / "low-00001.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no low-noise expert"):
        load_world(folder)
    monkeypatch.undo()
    for needed in ("vae", "text_encoder", "tokenizer"):
        with pytest.raises(FileNotFoundError, match=f"link the folder {needed} of a Wan pipeline"):
            load_world(folder)
        (folder / needed).mkdir(exist_ok=True)
        monkeypatch.setattr(world, "open_codec", lambda place, device: None)


def test_a_damaged_configuration_is_refused(folder):
    (folder / "config.json").write_text(json.dumps({"variant": "ar", "magic": 1}))
    with pytest.raises(ValueError, match="no configuration of a large world"):
        load_world(folder)


@pytest.mark.parametrize("name", LARGE_PRESETS)
def test_every_preset_is_whole_latents_tokens_and_memory(name):
    config = LARGE_PRESETS[name]
    channels, height, width = config.world.latent_shape
    factor = config.world.codec.spatial_factor
    assert (height * factor, width * factor) == (config.world.video.height, config.world.video.width)
    assert config.input_channels == 2 * channels + 4  # a latent, the picture's mask, the picture
    small = (config.world.video.height // 4, config.world.video.width // 4)  # of the small video
    assert all(size % (factor * config.world.transformer.patch) == 0 for size in small)
    assert config.world.transformer.width // config.world.transformer.heads == 128
