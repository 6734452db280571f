"""What a world is, and how a training run becomes one."""

from __future__ import annotations

import shutil
from dataclasses import replace

from world_model.checkpoint import load_world, save_world
from world_model.config import TINY
from world_model.world import World


def test_info_shows_sizes_and_versions(wp2, folder):
    answer = wp2("info", "--world", folder)
    assert answer.code == 0
    assert f"{folder} has no card.md" in answer.out
    assert "pictures    32x32, 8.75 a second" in answer.out and "chunk       1 latents of 1 frames" in answer.out
    assert "evaluations 4 of the network a frame, 4 a chunk" in answer.out
    assert "rewards     none are learned" in answer.out
    for name in ("codec", "text", "transformer", "compressor", "torch", "gymnasium"):
        assert name in answer.out


def test_info_counts_the_evaluations_of_a_chunk_for_each_of_its_frames(wp2, tmp_path):
    config = replace(TINY, chunk_latents=4, flow=replace(TINY.flow, sampling_steps=2))
    save_world(World.random(config), tmp_path)
    assert "evaluations 0.5 of the network a frame, 2 a chunk" in wp2("info", "--world", tmp_path).out


def test_info_shows_the_card(wp2, folder, tmp_path):
    world = shutil.copytree(folder, tmp_path / "world")
    (world / "card.md").write_text("# The tiny world\n")
    assert wp2("info", "--world", world).out.startswith("# The tiny world\n")


def test_a_damaged_world_is_one_sentence(wp2, folder, tmp_path):
    world = shutil.copytree(folder, tmp_path / "world")
    (world / "world.safetensors").write_bytes(b"damaged")
    assert "not a whole safetensors file" in wp2("info", "--world", world).error
    (world / "world.safetensors").unlink()
    assert "world.safetensors" in wp2("info", "--world", world).error
    (world / "config.json").write_text("{}}")
    assert "config.json is no configuration" in wp2("info", "--world", world).error


def test_a_run_is_trained_and_exported(wp2, data, tmp_path):
    run, world = tmp_path / "run", tmp_path / "world"
    train = ["train", "doom", "--stage", "codec", "--preset", "tiny", "--device", "cpu", "--data", data, "--out", run]
    answer = wp2(*train, "--steps", "1")
    assert answer.code == 0 and answer.out.endswith(f"the world of this run is in {run / 'world'}\n")
    answer = wp2("export", run, world)
    assert answer.code == 0 and answer.out == f"wrote {world}\n"
    assert load_world(world).name == "tiny"
    assert (world / "world.safetensors").read_bytes() == (run / "world" / "world.safetensors").read_bytes()


def test_a_folder_that_is_no_run_is_one_sentence(wp2, tmp_path):
    assert "no checkpoint" in wp2("export", tmp_path, tmp_path / "world").error
    assert not (tmp_path / "world").exists()
