"""Worlds on disk: what was saved comes back, and what is wrong is said by name."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from world_model.checkpoint import load_world, save_world
from world_model.config import DOOM, TINY, from_json, to_json
from world_model.world import World


@pytest.fixture
def folder(tiny_world, tmp_path):
    save_world(tiny_world, tmp_path / "mine")
    return tmp_path / "mine"


def test_a_saved_world_comes_back_in_bf16_precision(tiny_world, folder):
    world = load_world(folder)
    assert world.config == tiny_world.config and world.path == folder
    assert not list(folder.glob("*.tmp"))
    for name, value in tiny_world.state_dict().items():
        assert torch.equal(world.state_dict()[name], value.bfloat16().float()), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("transformer.head.weight"), "1 missing .transformer.head.weight."),
        (lambda t: t.update(extra=torch.zeros(1)), "1 unknown .extra."),
        (lambda t: t.update({"transformer.head.bias": torch.zeros(3)}), r"head.bias is \[3\], not \[4\]"),
        (lambda t: [t.pop(name) for name in list(t) if "blocks" in name], "and [0-9]+ more"),
    ],
)
def test_tensors_that_do_not_fit_are_listed(folder, change, message):
    tensors = load_file(folder / "world.safetensors")
    change(tensors)
    save_file(tensors, folder / "world.safetensors")
    with pytest.raises(ValueError, match=message):
        load_world(folder)


def test_damaged_and_missing_files_are_named(folder, tmp_path):
    whole = (folder / "world.safetensors").read_bytes()
    (folder / "world.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load_world(folder)
    (folder / "world.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no world.safetensors"):
        load_world(folder)
    (folder / "config.json").write_text(json.dumps({"colour": 1}))
    with pytest.raises(ValueError, match="no setting 'colour'"):
        load_world(folder)
    with pytest.raises(FileNotFoundError, match="there is no world 'nowhere'"):
        load_world("nowhere")


def test_a_device_that_is_not_there_is_named(folder):
    for device in ("cuda:99", "toaster", "meta"):
        with pytest.raises(ValueError, match=device):
            load_world(folder, device)


def test_configurations_survive_json():
    for config in (TINY, DOOM):
        assert from_json(to_json(config)) == config
    with pytest.raises(ValueError, match="multiple of 16"):
        from_json('{"video": {"height": 60}}')


def test_random_worlds_depend_on_the_seed_alone():
    torch.manual_seed(0)
    first = World.random("tiny", 3)
    expected = torch.rand(1)
    torch.manual_seed(0)
    second = World.random("tiny", 3)
    assert torch.equal(torch.rand(1), expected)
    weight = "transformer.patch_embedding.weight"
    assert torch.equal(first.state_dict()[weight], second.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], World.random("tiny", 4).state_dict()[weight])
    with pytest.raises(ValueError, match="no preset"):
        World.random("huge")
