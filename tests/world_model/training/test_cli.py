"""`wp2 train`: a run stays what it began as, and mistakes are told before anything is written."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace

import pytest
import torch

from world_model.checkpoint import load_world
from world_model.config import TINY, TrainingConfig
from world_model.training import cli
from world_model.training.stages import FORCING_STAGES, STAGES
from world_model.training.worlds import with_present_settings
from world_model.world import World


@pytest.fixture
def train(stripes, tmp_path):
    def run(*words: str) -> None:
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        common = ("--data", str(stripes.path), "--out", str(tmp_path / "run"), "--preset", "tiny", "--device", "cpu")
        cli.main(parser.parse_args([*common, *words]))

    return run


def test_a_run_goes_on_as_what_it_is_and_as_nothing_else(train, tmp_path):
    train("--stage", "codec", "--steps", "2")
    train("--stage", "codec", "--steps", "3")
    assert [path.name for path in (tmp_path / "run").glob("step-*3")] == ["step-00000003"]
    with pytest.raises(ValueError, match="is a run with stage 'codec', not 'decoder'; continue it with what it began"):
        train("--stage", "decoder", "--steps", "4")
    with pytest.raises(ValueError, match="is a run with start 'random weights of tiny, seed 0', not"):
        train("--stage", "codec", "--steps", "4", "--seed", "1")


def test_a_run_that_has_begun_needs_its_start_no_more(train, tmp_path):
    train("--stage", "codec", "--steps", "2")
    onward = ("--stage", "decoder", "--start", str(tmp_path / "run"), "--out", str(tmp_path / "onward"))
    train(*onward, "--steps", "2")
    shutil.rmtree(tmp_path / "run")
    train(*onward, "--steps", "3")
    assert (tmp_path / "onward" / "step-00000003").is_dir()


def test_a_refused_run_leaves_nothing_behind(train, tmp_path):
    with pytest.raises(ValueError, match="pictures of 32x32"):
        train("--stage", "codec", "--steps", "1", "--preset", "doom")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "0"), "--steps is 0; give a number above 0"),
        (("--minutes", "nan"), "--minutes is nan; give a number above 0"),
        (("--steps", "1", "--device", "abacus"), "abacus"),
        ((), "give --steps, --minutes or both"),
    ],
)
def test_a_mistake_is_told_and_leaves_nothing_behind(train, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        train("--stage", "codec", *words)
    assert not (tmp_path / "run").exists()


def test_recordings_of_another_size_are_refused(train):
    with pytest.raises(ValueError, match="pictures of 32x32 and the world 'doom' makes 64x64; record with --size 64"):
        train("--stage", "codec", "--steps", "1", "--preset", "doom")


@pytest.mark.parametrize("stage", FORCING_STAGES)
def test_a_forcing_stage_needs_a_teacher_until_it_has_begun(train, tmp_path, hasty_world, stage):
    words = ("--stage", stage, "--start", str(hasty_world))
    with pytest.raises(ValueError, match=f"{stage} needs a --teacher: the run or world of a history stage"):
        train(*words, "--steps", "1")
    assert not (tmp_path / "run").exists()
    train(*words, "--teacher", str(hasty_world), "--steps", "1")
    train(*words, "--steps", "2")
    assert (tmp_path / "run" / "step-00000002").is_dir()
    with pytest.raises(ValueError, match="is a run with teacher .*, not 'doom'"):
        train(*words, "--teacher", "doom", "--steps", "3")


@pytest.mark.parametrize("stage", sorted(set(STAGES) - set(FORCING_STAGES)))
def test_no_other_stage_takes_a_teacher(train, tmp_path, stage):
    with pytest.raises(ValueError, match=f"{stage} has no teacher to choose; leave out --teacher elsewhere"):
        train("--stage", stage, "--teacher", "elsewhere", "--steps", "1")
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_other_latents_is_refused_before_anything_is_written(train, tmp_path, hasty_world):
    train("--stage", "codec", "--steps", "1", "--start", str(hasty_world), "--out", str(tmp_path / "codec"))
    with pytest.raises(ValueError, match="the teacher has another codec than the student"):
        teacher = tmp_path / "codec" / "world"
        words = ("--stage", "stable_forcing", "--start", str(hasty_world), "--teacher", str(teacher))
        train(*words, "--steps", "1")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stage", ["few_step", "stable_forcing"])
def test_runs_of_the_wrong_stage_are_refused_before_anything_is_written(train, tmp_path, hasty_world, stage):
    codec = str(tmp_path / "codec")
    train("--stage", "codec", "--steps", "1", "--start", str(hasty_world), "--out", codec)
    teacher = ("--teacher", str(hasty_world)) if stage == "stable_forcing" else ()
    with pytest.raises(ValueError, match="--start .* is a run of the stage codec; give one of autoregressive, "):
        train("--stage", stage, "--start", codec, *teacher, "--steps", "1")
    if teacher:
        with pytest.raises(ValueError, match="--teacher .* is a run of the stage codec; give one of history"):
            train("--stage", stage, "--start", str(hasty_world), "--teacher", codec, "--steps", "1")
    assert not (tmp_path / "run").exists()


def test_a_distilled_world_keeps_its_heads_only_where_they_go_on_to_learn(train, tmp_path, hasty_world):
    distilled = str(tmp_path / "run")
    train("--stage", "few_step", "--start", str(hasty_world), "--steps", "2")
    assert load_world(tmp_path / "run" / "world").config.flow.blocks == (2, 1)
    kept = {"autoregressive": (), "few_step": (2, 1), "stable_forcing": (2, 1), "decoder": (2, 1)}
    for stage, blocks in kept.items():
        teacher = ("--teacher", str(tmp_path / "run" / "world")) if stage == "stable_forcing" else ()
        train("--stage", stage, "--start", distilled, *teacher, "--steps", "1", "--out", str(tmp_path / stage))
        world = load_world(tmp_path / stage / "start")
        assert world.config.flow.blocks == blocks, stage
        if teacher:
            assert not load_world(tmp_path / stage / "teacher").config.flow.blocks
            learned = load_world(tmp_path / "run" / "world").parallel_decoder.bias
            assert torch.equal(world.parallel_decoder.bias, learned)
    new = load_world(tmp_path / "few_step" / "start")
    assert torch.equal(new.parallel_decoder.bias[2], new.transformer.head.bias)


def test_settings_shape_the_run_that_they_are_given_to(train, tmp_path, hasty_world):
    words = ("--stage", "few_step", "--start", str(hasty_world))
    with pytest.raises(ValueError, match="few_step has no setting 'blocs'"):
        train(*words, "--steps", "1", "--set", "few_step.blocs=[1]")
    assert not (tmp_path / "run").exists()
    train(*words, "--steps", "1", "--set", "few_step.blocks=[1, 1, 2]", "few_step.midpoint=true")
    config = load_world(tmp_path / "run" / "world").config
    assert config.flow.blocks == (1, 1, 2) and config.curriculum.few_step.midpoint


def test_present_settings_of_a_preset_leave_a_distilled_world_its_heads():
    old = replace(TINY, flow=replace(TINY.flow, shift=9.0), curriculum=replace(TINY.curriculum, codec=TrainingConfig()))
    world = with_present_settings(World.random(old).with_blocks((3, 1)).fused())
    flow = world.config.flow
    assert (flow.blocks, flow.fused, flow.sampling_steps) == ((3, 1), True, 2)
    assert flow.shift == TINY.flow.shift and world.config.curriculum == TINY.curriculum
    assert with_present_settings(World.random(old)).config == TINY


def test_a_fused_export_is_smaller_and_only_of_a_distilled_world(train, tmp_path, hasty_world):
    def export(*words):
        parser = argparse.ArgumentParser()
        cli.add_export_arguments(parser)
        cli.export_main(parser.parse_args([str(word) for word in words]))

    run = tmp_path / "run"
    train("--stage", "few_step", "--start", str(hasty_world), "--steps", "1")
    export(run, tmp_path / "whole")
    export(run, tmp_path / "small", "--fused", "--steps", "1")
    whole, small = (load_world(tmp_path / name) for name in ("whole", "small"))
    assert small.config.flow.fused and not whole.config.flow.fused
    assert (len(small.parallel_decoder.bias), len(whole.parallel_decoder.bias)) == (2, 3)
    assert (small.config.flow.sampling_steps, whole.config.flow.sampling_steps) == (1, 2)
    with pytest.raises(ValueError, match="flow.sampling_steps is 3, which does not divide the 2 blocks"):
        export(run, tmp_path / "none", "--steps", "3")
    fused = whole.fused().parallel_decoder.weight
    torch.testing.assert_close(small.parallel_decoder.weight, fused, atol=1e-2, rtol=1e-2)
    train("--stage", "autoregressive", "--start", str(hasty_world), "--steps", "1", "--out", str(tmp_path / "plain"))
    with pytest.raises(ValueError, match="has no parallel decoder to fuse; distil it first"):
        export(tmp_path / "plain", tmp_path / "none", "--fused")
    assert not (tmp_path / "none").exists()
