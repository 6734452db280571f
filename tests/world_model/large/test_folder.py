"""Our own layout of large worlds: what is written is what direct loading gives, whole or not at all."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from world_model.large import load_base, load_expert
from world_model.large.base_models import NEW, base_files, diffusers_name
from world_model.large.few_step import intervals_of
from world_model.large.folder import (
    LargeWorld,
    convert,
    link_companions,
    load_large_world,
    read_large_world,
    write_experts,
)
from world_model.large.tensor_files import weight_files


def repository(folder, published, suffix=".safetensors"):
    """A published repository: two experts in one file each, the low one's tensors doubled."""
    for expert, factor in (("high", 1), ("low", 2)):
        save_file({name: factor * value for name, value in published.items()}, folder / f"{expert}_noise_model{suffix}")
    return folder


def same(one, other):
    state = other.state_dict()
    assert state.keys() == one.state_dict().keys()
    return all(torch.equal(value, state[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("variant", ["ar", "bi", "fast"])
def test_a_converted_world_equals_the_published_one(toy, published, tmp_path, variant, dtype):
    source = repository(tmp_path, published)
    if variant == "fast":
        for expert in ("high", "low"):
            start, end = intervals_of(expert)
            bank = {name: value for name, value in published.items() if not name.startswith("head.head")}
            bank |= {"head.weight": torch.randn(end - start, 16, 16), "head.bias": torch.randn(end - start, 16)}
            save_file(bank, source / f"{expert}_noise_model.safetensors")
    world = LargeWorld(toy, variant)
    written = convert(source, tmp_path / "ours", world, dtype=dtype, shard_bytes=5000)
    assert read_large_world(tmp_path / "ours") == world
    loaded = load_large_world(tmp_path / "ours", dtype=dtype)
    for expert in ("high", "low"):
        direct = load_expert(
            [source / f"{expert}_noise_model.safetensors"], toy, expert if variant == "fast" else None, dtype
        )
        assert same(loaded[expert], direct)
        assert not any(value.is_meta or value.requires_grad for value in loaded[expert].parameters())
    assert len(written["high"]) > 3
    assert {file.name for file in (tmp_path / "ours").iterdir()} == {
        "config.json",
        *(file.name for files in written.values() for file in files),
    }


def test_a_shard_holds_no_more_than_asked_and_the_dtype_asked(toy, published, tmp_path):
    written = convert(repository(tmp_path, published), tmp_path / "ours", LargeWorld(toy, "ar"), shard_bytes=4096)
    for file in written["low"]:
        with safe_open(file, framework="pt") as reader:
            tensors = [reader.get_tensor(name) for name in reader.keys()]
        assert {value.dtype for value in tensors} == {torch.bfloat16}
        assert len(tensors) == 1 or sum(value.nbytes for value in tensors) <= 4096


def test_one_expert_at_a_time_from_its_file(toy, published, tmp_path):
    source, ours, world = repository(tmp_path, published), tmp_path / "ours", LargeWorld(toy, "ar")
    convert(source / "high_noise_model.safetensors", ours, world, ("high",))
    with pytest.raises(FileNotFoundError, match="no low-noise expert"):
        load_large_world(ours)
    convert(source / "low_noise_model.safetensors", ours, world, ("low",))
    whole = tmp_path / "whole"
    convert(source, whole, world)
    for one, other in zip(load_large_world(ours).values(), load_large_world(whole).values(), strict=True):
        assert same(one, other)
    with pytest.raises(ValueError, match="one file; say with --expert"):
        convert(source / "low_noise_model.safetensors", tmp_path / "other", world)


def test_nothing_is_left_of_a_conversion_that_failed(toy, published, tmp_path):
    source, ours = repository(tmp_path, published), tmp_path / "ours"
    del published["blocks.1.norm3.weight"]
    save_file(published, source / "low_noise_model.safetensors")
    with pytest.raises(ValueError, match="1 missing .blocks.1.norm3.weight."):
        convert(source, ours, LargeWorld(toy, "ar"), shard_bytes=5000)
    assert not list(ours.iterdir())


def test_a_folder_is_not_mixed_or_replaced(toy, published, tmp_path):
    source, ours = repository(tmp_path, published), tmp_path / "ours"
    convert(source, ours, LargeWorld(toy, "ar"), ("high",))
    before = {file: file.read_bytes() for file in ours.iterdir()}
    with pytest.raises(ValueError, match="holds the high-noise expert already"):
        convert(source, ours, LargeWorld(toy, "ar"))
    for other in (LargeWorld(toy, "bi"), LargeWorld(replace(toy, text_tokens=5), "ar")):
        with pytest.raises(ValueError, match="belongs to another world"):
            convert(source, ours, other, ("low",))
    assert before == {file: file.read_bytes() for file in ours.iterdir()}


def pipeline(folder, published, channels):
    """Wan's part of random published tensors as a diffusers pipeline, whose patch embedding knows ``channels``."""
    wan = {diffusers_name(name): value for name, value in published.items() if not re.fullmatch(NEW, name)}
    wan["patch_embedding.weight"] = wan["patch_embedding.weight"][:, :channels].contiguous()
    for part in ("transformer", "transformer_2", "vae"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for part in ("transformer", "transformer_2"):
        save_file(wan, folder / part / "diffusion_pytorch_model.safetensors")
    return folder


@pytest.mark.parametrize(("layout", "channels"), [("toy", 12), ("toy", 4), ("single", 4)])
def test_a_world_that_starts_from_video_weights_equals_direct_loading(request, published, tmp_path, layout, channels):
    config = request.getfixturevalue(layout)
    source, ours = pipeline(tmp_path / "wan", published, channels), tmp_path / "ours"
    written = convert(source, ours, LargeWorld(config, "base"), dtype=torch.float32, shard_bytes=5000)
    assert tuple(written) == config.experts and all(len(files) > 3 for files in written.values())
    for name, expert in load_large_world(ours, dtype=torch.float32).items():
        assert same(expert, load_base(base_files(source, name), config))


@pytest.mark.parametrize("text", ["{}", "{", "[]", '{"weight_map": 1}'])
def test_a_damaged_index_of_shards_is_named(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match="model.safetensors.index.json is no index of shards"):
        weight_files(tmp_path)


def test_a_shard_that_the_index_lists_must_be_there(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "m-1.safetensors"}}')
    with pytest.raises(FileNotFoundError, match="m-1.safetensors, which model.safetensors.index.json lists"):
        weight_files(tmp_path)


def test_writing_again_leaves_no_shards_of_before(toy, published, tmp_path):
    world, source = LargeWorld(toy, "ar"), repository(tmp_path, published)
    convert(source, tmp_path / "ours", world, ("high",), torch.float32, shard_bytes=5000)
    expert = load_large_world(tmp_path / "ours", ["high"], torch.float32)["high"]
    files = write_experts(tmp_path / "ours", world, {"high": expert.state_dict().items()}, torch.float32)["high"]
    assert sorted((tmp_path / "ours").glob("high-*")) == files
    assert same(load_large_world(tmp_path / "ours", ["high"], torch.float32)["high"], expert)


def test_companions_are_linked_where_the_world_has_none(published, tmp_path):
    source, ours = pipeline(tmp_path / "wan", published, 4), tmp_path / "ours"
    ours.mkdir()
    assert link_companions(ours, source) == ["vae"] and (ours / "vae").resolve() == source / "vae"
    assert link_companions(ours, source) == []


def test_pickles_absent_files_and_foreign_folders_are_refused(toy, published, tmp_path):
    world = LargeWorld(toy, "ar")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        convert(tmp_path / "nowhere", tmp_path / "ours", world)
    with pytest.raises(FileNotFoundError, match="no weights of the high-noise expert"):
        convert(tmp_path, tmp_path / "ours", world)
    with pytest.raises(FileNotFoundError, match="no Wan weights in diffusers' format"):
        convert(tmp_path, tmp_path / "ours", LargeWorld(toy, "base"))
    inside = tmp_path / "pickled" / "high_noise_model"
    inside.mkdir(parents=True)
    torch.save(published, inside / "model.pt")
    torch.save(published, tmp_path / "pickled" / "low_noise_model.pt")
    for expert in ("high", "low"):
        with pytest.raises(ValueError, match="is a pickle"):
            convert(tmp_path / "pickled", tmp_path / "ours", world, (expert,))
    (tmp_path / "pickled" / "transformer").mkdir()
    torch.save(published, tmp_path / "pickled" / "transformer" / "diffusion_pytorch_model.bin")
    with pytest.raises(ValueError, match="is a pickle"):
        convert(tmp_path / "pickled", tmp_path / "ours", LargeWorld(toy, "base"), ("high",))
    with pytest.raises(FileNotFoundError, match="no config.json"):
        load_large_world(tmp_path)
    for text in ("[]", '{"variant": "ar"}', '{"magic": 1}', "{"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match="no configuration of a large world"):
            load_large_world(tmp_path)
