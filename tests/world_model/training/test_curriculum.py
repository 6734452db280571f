"""The curriculum: each stage from the world of the one before, on from any stop, and a report of what was done."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys

import pytest
import torch

from world_model.checkpoint import load_world
from world_model.training import cli, curriculum, loop
from world_model.training.curriculum import ORDER, budgets
from world_model.training.losses import append_loss, read_losses, rewind_losses

STEPS = 2
GIVEN = [f"{stage}={STEPS}" for stage in ORDER]


@pytest.fixture
def train(stripes, hasty_world, tmp_path):
    """Runs the command with a run folder of its own, from the hasty world unless told otherwise."""

    def run(*words: str, start: str = str(hasty_world)) -> None:
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        common = ("--data", str(stripes.path), "--out", str(tmp_path / "all"), "--preset", "tiny", "--device", "cpu")
        origin = ("--start", start) if start else ()
        cli.main(parser.parse_args([*common, *origin, *words]))

    return run


def same_weights(one, two) -> bool:
    left, right = load_world(one).state_dict(), load_world(two).state_dict()
    return all(torch.equal(left[name], right[name]) for name in left)


def test_every_stage_starts_from_the_world_of_the_one_before_and_all_is_reported(train, tmp_path):
    train("--curriculum", "--first", "codec", "--steps", *GIVEN)
    folder = tmp_path / "all"
    for before, after in zip(ORDER, ORDER[1:], strict=False):
        assert same_weights(folder / before / "world", folder / after / "start")
        # The student of Stable Forcing has one step here, and that has no direction, as both scores are still the same.
        assert after == "stable_forcing" or not same_weights(folder / after / "start", folder / after / "world")
    assert len(list((folder / "cache").iterdir())) == 1  # the recordings were encoded once
    stages = json.loads((folder / "report.json").read_text())["stages"]
    assert [(stage["stage"], stage["steps"], stage["world"]) for stage in stages] == [
        (name, STEPS, f"{name}/world") for name in ORDER
    ]
    assert same_weights(folder / "history" / "world", folder / "stable_forcing" / "teacher")
    parts = {name: load_world(folder / name / "world") for name in ORDER}
    for stage in stages:
        world = parts[stage["stage"]]
        codec = sum(parameter.numel() for parameter in world.codec.parameters())
        others = sum(parameter.numel() for parameter in world.parameters()) - codec
        limit = codec if stage["stage"] == "codec" else others
        if stage["stage"] == "stable_forcing":
            limit *= 2  # the fake score is trained, too
        assert 0.5 * limit < stage["parameters_trained"] <= limit
        assert stage["first_loss"] > 0 and stage["steps_per_second"] > 0
    text = (folder / "report.md").read_text()
    assert all(f"`{name}/world`" in text for name in ORDER)
    assert (folder / "losses.png").stat().st_size > 1000


def test_finished_stages_are_skipped_and_their_budgets_hold(train, tmp_path, monkeypatch, capsys):
    train("--curriculum", "--first", "codec", "--steps", *GIVEN)
    weights = (tmp_path / "all" / ORDER[-1] / "world" / "world.safetensors").read_bytes()
    with pytest.raises(ValueError, match="the budget of codec is not used, but navigation has already begun"):
        train("--curriculum", "--first", "codec", "--steps", "codec=3", *GIVEN[1:])
    with pytest.raises(ValueError, match="is a run with start"):
        train("--curriculum", "--first", "codec", "--steps", *GIVEN, start="doom")
    monkeypatch.setattr(curriculum, "run_stage", lambda run, budget: pytest.fail(f"{run.stage} was trained again"))
    capsys.readouterr()
    train("--curriculum", "--first", "codec", "--steps", *GIVEN)
    told = capsys.readouterr().out
    assert all(f"{name} is finished after {STEPS} steps" in told for name in ORDER)
    assert (tmp_path / "all" / ORDER[-1] / "world" / "world.safetensors").read_bytes() == weights


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("last_step", [False, True])
def test_a_signal_ends_the_curriculum_and_the_same_command_goes_on(train, tmp_path, monkeypatch, number, last_step):
    command = ("--curriculum", "--first", "codec", "--steps", "codec=2", "navigation=2", *GIVEN[2:])
    draw = loop.step_generator
    drawn = []

    def interrupted(seed, step):
        drawn.append(step)
        if len(drawn) == 3 + last_step:
            os.kill(os.getpid(), number)
        return draw(seed, step)

    monkeypatch.setattr(loop, "step_generator", interrupted)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        train(*command)
    assert end.value.code == (
        f"train doom: interrupted in navigation at step {1 + last_step}; the same command goes on from here"
    )
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not (tmp_path / "all" / ORDER[2]).exists() and not (tmp_path / "all" / "report.json").exists()
    train(*command)
    assert drawn[:4] == [0, 1, 0, 1] and (tmp_path / "all" / "report.json").exists()


def test_a_start_skips_the_codec_and_first_skips_more(train, tmp_path):
    train("--curriculum", "--steps", *GIVEN)
    assert not (tmp_path / "all" / "codec").exists() and (tmp_path / "all" / "navigation").exists()


def test_first_skips_the_stages_before_it(train, tmp_path, hasty_world):
    train("--curriculum", "--first", ORDER[-1], "--teacher", str(hasty_world), "--steps", *GIVEN)
    assert sorted(path.name for path in (tmp_path / "all").iterdir() if path.is_dir()) == sorted([ORDER[-1], "cache"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--curriculum", "--steps", "5"), "--steps 5 names no stage of the curriculum; write STAGE=5 with codec, "),
        (("--curriculum", "--minutes", "decoder=5"), "--minutes decoder=5 names no stage of the curriculum"),
        (("--curriculum", "--minutes", "navigation=0"), "--minutes is 0.0; give a number above 0"),
        (("--stage", "codec", "--steps", "codec=5"), "--steps takes one plain number with --stage"),
        (("--stage", "codec", "--minutes", "5", "6"), "--minutes takes one plain number with --stage"),
        (("--stage", "codec", "--first", "navigation", "--steps", "5"), "--first navigation is for --curriculum"),
    ],
)
def test_a_mistake_is_told_in_one_sentence_and_leaves_nothing_behind(train, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        train(*words)
    assert not (tmp_path / "all").exists()


def test_a_network_stage_does_not_begin_on_a_random_codec(train):
    with pytest.raises(ValueError, match="the stage navigation needs a codec that has learned; give a --start"):
        train("--curriculum", "--first", "navigation", "--steps", *GIVEN, start="")


@pytest.mark.parametrize("first", ["autoregressive", "few_step", "stable_forcing"])
def test_a_curriculum_that_begins_after_its_teacher_is_given_one(train, tmp_path, first):
    with pytest.raises(ValueError, match="a curriculum without its history stage needs a --teacher, the run or world"):
        train("--curriculum", "--first", first, "--steps", *GIVEN)
    assert not (tmp_path / "all").exists()


def test_a_stage_without_a_budget_has_that_of_the_table():
    limits = budgets({"codec": 7}, {"navigation": 2.5})
    assert (limits["codec"].steps, limits["codec"].minutes) == (7, None)
    assert limits["navigation"].minutes == 2.5
    assert limits["autoregressive"].minutes == 60 and limits["autoregressive"].steps is None


def test_losses_are_logged_once_per_step_whatever_a_kill_left(tmp_path):
    for step in (10, 20, 30):
        append_loss(tmp_path, {"step": step, "loss": 1 / step})
    with open(tmp_path / "losses.jsonl", "a") as file:
        file.write('{"step": 40, "lo')
    assert [entry["step"] for entry in read_losses(tmp_path)] == [10, 20, 30]
    rewind_losses(tmp_path, 20)
    append_loss(tmp_path, {"step": 30, "loss": 0.5})
    assert [(entry["step"], entry["loss"]) for entry in read_losses(tmp_path)] == [(10, 0.1), (20, 0.05), (30, 0.5)]


def test_a_report_without_matplotlib_says_so(train, tmp_path, monkeypatch, hasty_world):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    train("--curriculum", "--first", ORDER[-1], "--teacher", str(hasty_world), "--steps", *GIVEN)
    assert "matplotlib is not installed" in (tmp_path / "all" / "report.md").read_text()
    assert not (tmp_path / "all" / "losses.png").exists()
