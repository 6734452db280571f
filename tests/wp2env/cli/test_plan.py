"""``wp2 plan`` prints what the plan holds."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("purpose", "named"), [(["--inference"], "key-value cache"), (["--train", "navigation"], "Adam")]
)
def test_a_plan_names_every_use_and_their_sum(wp2, purpose, named):
    answer = wp2("plan", "--preset", "wan2.1-1.3b", "--gpus", "2", "--frames", "29", *purpose)
    assert answer.code == 0 and not answer.err
    head, *lines = answer.out.strip().split("\n\n")[1].split("\n")[::-1]
    assert any(named in line for line in lines)
    assert "8 latents" in answer.out and "on each of 2 GPUs" in answer.out
    parts = [float(line[36:45].replace(",", "")) for line in lines]
    assert float(head.split()[-1].replace(",", "")) == pytest.approx(sum(parts), abs=0.01 * len(parts))


def test_frames_that_do_not_fit_are_answered_in_one_sentence(wp2):
    assert "give 77 or 93" in wp2("plan", "--preset", "worldplay2-14b", "--frames", "81").error
    rollout = ["--preset", "wan2.1-1.3b", "--train", "stable_forcing", "--frames", "157"]
    assert "157 frames is not 13 true ones and clips of 128; give 141 or 269" in wp2("plan", *rollout).error


def test_a_plan_of_distillation_names_the_networks_one_by_one(wp2):
    answer = wp2("plan", "--preset", "wan2.1-1.3b", "--gpus", "8", "--train", "few_step", "--frames", "29")
    assert answer.code == 0 and not answer.err
    uses = [line[:36].strip() for line in answer.out.splitlines() if line.startswith("  ")]
    assert {"student: gradients", "teacher: weights", "student: optimiser (AdamW, Muon)"} <= set(uses)
    assert "teacher: gradients" not in uses


def test_stages_without_a_plan_are_answered_in_one_sentence(wp2):
    assert (
        "full_context does not train large worlds"
        in wp2("plan", "--preset", "wan2.1-1.3b", "--train", "full_context").error
    )
    assert (
        "stable_forcing of tiny cannot be planned" in wp2("plan", "--preset", "tiny", "--train", "stable_forcing").error
    )


@pytest.mark.parametrize("stage", ["navigation", "autoregressive", "few_step"])
def test_a_small_preset_is_planned_as_its_curriculum_trains_it(wp2, stage):
    answer = wp2("plan", "--preset", "tiny", "--train", stage, "--gpus", "2")
    assert answer.code == 0 and not answer.err
    assert f"tiny: training, stage {stage}" in answer.out and "batch 4 on each GPU" in answer.out
    assert "optimiser (AdamW, Muon)" in answer.out and "activations" in answer.out


def test_a_small_preset_whose_weights_are_split_names_both_parts(wp2):
    answer = wp2("plan", "--preset", "doom-gpu", "--train", "navigation", "--gpus", "2", "--fsdp")
    weights = next(line for line in answer.out.splitlines() if line.lstrip().startswith("weights  "))
    assert answer.code == 0 and "1/2 of " in weights and " and " in weights


@pytest.mark.parametrize("option", [["--frames", "5"], ["--batch", "2"], ["--inference"], ["--keep-activations"]])
def test_options_of_the_large_presets_are_refused_for_small_ones(wp2, option):
    assert f"{option[0]} is for the large presets" in wp2("plan", "--preset", "doom", *option).error


@pytest.mark.parametrize("option", ["--fsdp", "--keep-activations"])
def test_options_of_training_are_refused_for_a_rollout(wp2, option):
    said = wp2("plan", "--preset", "wan2.1-1.3b", "--inference", option).error
    assert f"{option} is for training; leave it out with --inference" in said


def test_more_latents_than_the_model_has_positions_for_are_refused(wp2):
    said = wp2("plan", "--preset", "wan2.1-1.3b", "--inference", "--frames", "4109").error
    assert "4109 frames are 1028 latents, and the model has positions for 1024; give at most 4093" in said
