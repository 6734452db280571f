"""Large worlds in two processes: the same chunks as in one, from half of every block each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from world_model.config import VideoConfig, to_json
from world_model.large import LargeConfig, parallel, plan
from world_model.large.folder import LargeWorld, load_large_world
from world_model.large.parallel import Share, check_split, split_axis
from world_model.large.tensor_files import TensorFiles

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parent / "together.py"
CHUNKS, CHUNK = 3, 4
TOLERANCE = 1e-5  # of the largest value
ROUGH = 0.1  # of the vectors' length, where weights or activations have 8 bits of precision
IN_RUNS = (("one", 0), ("two", 0), ("two", 1))  # the processes
SECONDS = 600  # for one launch; processes that wait for each other are not waited for

together = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch was built without gloo",
)


@pytest.fixture(scope="module")
def small(toy) -> LargeConfig:
    """Larger than the toy world, so that most of a block is what is split; each of two processes has two heads."""
    sizes = replace(toy.world.transformer, width=96, heads=4, ffn_width=256)
    return replace(toy, world=replace(toy.world, transformer=sizes))


@pytest.fixture(scope="module")
def worlds(small, lively_experts, tmp_path_factory) -> Path:
    """A distilled world, one that is guided, and a control JSON."""
    folder = tmp_path_factory.mktemp("worlds")
    for variant in ("fast", "ar"):
        large, place = LargeWorld(small, variant), folder / variant
        place.mkdir()
        for name, expert in lively_experts(large).items():
            save_file(expert.state_dict(), place / f"{name}-00001.safetensors")
        (place / "config.json").write_text(to_json(large))
    cv2.imwrite(str(folder / "hall.png"), np.arange(1800, dtype=np.uint8).reshape(20, 30, 3))
    entry = {"image_path": "hall.png", "perspective": "fps", "action": "w-4,left-4", "prompt1": "a hall"}
    (folder / "in.json").write_text(json.dumps([entry | {"prompt_event": "prompt1-8", "output_name": "walk"}]))
    return folder


@pytest.fixture(scope="module")
def runs(worlds, tmp_path_factory) -> dict[str, Path]:
    """What one process and what two make of them."""
    launchers = {"one": [], "two": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]}
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    folders = {}
    for name, launcher in launchers.items():
        folders[name] = tmp_path_factory.mktemp(name)
        words = [sys.executable, *launcher, SCRIPT, worlds, folders[name]]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("wrote ") == 1
    return folders


@together
def test_two_processes_make_the_chunks_that_one_makes(runs):
    alone, first, second = (load_file(runs[run] / f"{index}.safetensors") for run, index in IN_RUNS)
    for case, value in alone.items():
        if case == "environment":
            continue
        assert value.shape[0] == CHUNKS and torch.equal(first[case], second[case]), case
        assert not torch.equal(value[0], value[1])
        apart, size = first[case] - value, value.abs().max()
        if "float32" in case:
            assert apart.abs().max() < TOLERANCE * size, case
        else:
            assert 0 < apart.norm() < ROUGH * value.norm(), case


@together
def test_environments_and_videos_are_those_of_one_process_and_follow_the_first(runs):
    alone, first, second = (load_file(runs[run] / f"{index}.safetensors") for run, index in IN_RUNS)
    alone, first, second = (results["environment"].int() for results in (alone, first, second))
    assert torch.equal(first, second) and (first - alone).abs().max() <= 1  # a level of uint8
    names = {run: sorted(file.name for file in runs[run].glob("*.npy")) for run in runs}
    assert names == {"one": ["walk.0.npy"], "two": ["walk.0.npy"]}
    one, two = (np.load(runs[run] / "walk.0.npy").astype(int) for run in ("one", "two"))
    assert len(one) == 13 + 16 and abs(one - two).max() <= 1


@together
def test_a_process_holds_half_of_the_blocks_and_of_the_memory_and_what_the_plan_says(runs, small):
    alone, first, second = (json.loads((runs[run] / f"{index}.json").read_text()) for run, index in IN_RUNS)
    for case, whole in alone.items():
        assert first[case] == second[case]
        held = first[case]
        assert held["heads"] == 2 and whole["heads"] == 4 and 2 * held["memory"] == whole["memory"]
        assert 0.5 <= held["blocks"] / whole["blocks"] < 0.52, case
    for gpus, counted in ((1, alone), (2, first)):
        measured = counted["fast float32 resident"]
        found = planned(small, gpus)  # in bf16, half as many bytes
        assert 2 * found["weights"] == measured["all"]
        assert 2 * found["key-value cache"] == measured["memory"]


def test_activations_of_a_share_are_those_planned(small, allocated, tolerance, monkeypatch):
    monkeypatch.setattr(parallel.distributed, "all_reduce", lambda x: None)
    config = replace(small, world=replace(small.world, video=VideoConfig(height=128, width=192)))
    expert = plan.on_meta(config, few_step=True).to_empty(device="cpu").requires_grad_(False)
    for value in expert.parameters():
        value.zero_()
    parallel.split(expert, Share(1, 2))
    tokens = plan.cached_tokens(config, CHUNKS * CHUNK)
    latents, context = (CHUNKS + 1) * CHUNK, plan.key_values(expert, 1, tokens + CHUNK * 96)
    with torch.no_grad():
        measured = [
            allocated(lambda: plan.denoise_chunk(expert, latents, 1, context)),
            allocated(lambda: plan.grow_cache(expert, latents - CHUNK, 1)),
        ]
    assert planned(config, 2)["activations"] == pytest.approx(max(measured), rel=tolerance)
    assert planned(config, 2)["activations"] < planned(config, 1)["activations"]


@pytest.mark.parametrize("int8", [False, True])
def test_each_share_is_read_alone_and_all_of_them_are_the_whole(worlds, monkeypatch, int8):
    whole = load_large_world(worlds / "fast", ["low"], torch.float32)["low"].state_dict()
    read, plain = [], TensorFiles.__getitem__
    monkeypatch.setattr(TensorFiles, "__getitem__", lambda source, name: read.append(name) or plain(source, name))
    shares = [
        load_large_world(worlds / "fast", ["low"], torch.float32, int8=int8, share=Share(index, 2))["low"]
        for index in range(2)
    ]
    assert read and all(split_axis(name) is None for name in read)
    for name, value in whole.items():
        path, _, leaf = name.rpartition(".")
        parts = [getattr(share.get_submodule(path), leaf) for share in shares]
        axis = split_axis(name)
        if ".blocks." in name and name.endswith(("o.bias", "out.bias", "ffn.2.bias")):
            value_of_all = sum(parts)
        else:
            value_of_all = parts[0] if axis is None else torch.cat(parts, axis)
        close = 1 / 254 * value.abs().max() if int8 and axis is not None else 0
        torch.testing.assert_close(value_of_all, value, rtol=0, atol=float(close), msg=name)


def test_numbers_of_processes_that_do_not_fit_are_answered_with_those_that_do(worlds, toy, small):
    with pytest.raises(ValueError, match="toy does not split among 3 processes.* 2 heads .*; take one of 1, 2"):
        check_split(toy, 3)
    with pytest.raises(ValueError, match="take one of 1, 2, 4"):
        load_large_world(worlds / "fast", share=Share(0, 8))
    with pytest.raises(ValueError, match="40 heads and the 13824 hidden.*take one of 1, 2, 4, 8"):
        plan.plan_rollout(plan.PRESETS["worldplay2-14b"], 20, gpus=5)


def test_a_process_without_a_gpu_is_told_how_many_there_are(monkeypatch):
    monkeypatch.setattr(parallel.distributed, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="process 3 of this machine has none of its 2 GPUs; start 2 at most"):
        with parallel.joined("cuda"):
            pass
    with pytest.raises(ValueError, match="give 'cuda', and each takes its own GPU"):
        with parallel.joined("cuda:1"):
            pass


def planned(config, gpus):
    found = plan.plan_rollout(config, (CHUNKS + 1) * CHUNK, gpus)
    return {item.what: item.per_gpu(gpus) for item in found.items}
