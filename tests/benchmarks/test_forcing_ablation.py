"""The ablation of Stable Forcing on tiny worlds and made-up recordings: what the arms are, and the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import drift, forcing_ablation, forcing_arms, report
from benchmarks.forcing_ablation import COLUMNS, DRIFT, verdict
from benchmarks.forcing_arms import (
    ARMS,
    FEW_STEP,
    FULL,
    FULL_CONTEXT,
    NEITHER,
    NO_START,
    Training,
    stages_of,
    train_arm,
)
from benchmarks.forcing_scores import PSNR, RESPONSE, build, drifted, perform
from world_model.checkpoint import load_world, save_world
from world_model.config import TINY, FewStepConfig, StableForcingConfig
from world_model.controls import ACTION_DIM, PERSPECTIVE, YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.training import curriculum
from world_model.training.loop import Budget
from world_model.world import World

LEVELS, FRAMES, SIZE = 3, 24, 32


def made_up_clip(level: int, index: int) -> Clip:
    rng = np.random.default_rng([level, index])
    rows = np.zeros((FRAMES, ACTION_DIM), np.float32)
    rows[1:, YAW], rows[:, PERSPECTIVE] = rng.choice([-8.0, 8.0], FRAMES - 1), 1
    frames = rng.integers(0, 256, (FRAMES, SIZE, SIZE, 3), dtype=np.uint8)
    return Clip(frames, rows, ((0, StructuredCaption("a hall")),), meta={"level_seed": level})


@pytest.fixture(scope="module")
def folder(listening_world, write_store, tmp_path_factory):
    """A folder with student and teacher, whose stages take small batches, and a store."""
    small = {"batch": 1, "frames": 4, "history": 0, "growth_steps": 1, "warmup_steps": 1}
    stages = replace(
        TINY.curriculum,
        few_step=FewStepConfig(blocks=(2, 2), **small),
        stable_forcing=StableForcingConfig(start=3, clips=2, ratio=1, learning_rate=0.01, **small),
    )
    config = replace(TINY, name="hasty", curriculum=stages)  # no preset's name: it keeps its settings
    folder = tmp_path_factory.mktemp("forcing")
    world = World.random(config)
    world.load_state_dict(listening_world.state_dict())  # to memory, too: else all scores are the same
    for name in ("student", "teacher"):
        save_world(world, folder / name)
    write_store(folder / "data", [made_up_clip(level, index) for level in range(LEVELS) for index in range(2)])
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(drift, "TRUE_FRAMES", FRAMES)
    monkeypatch.setattr(drift, "SHORTEST", 4)


@pytest.fixture
def command(folder, tmp_path):
    """Runs the command; gives its exit code."""

    def run(*words: str) -> int:
        data = str(folder / "data")
        common = ["--student", str(folder / "student"), "--teacher", str(folder / "teacher"), "--out", str(tmp_path)]
        common += ["--data", data, "--test", data, "--starts", "2", "--horizon", "8", "--many", "3"]
        return report.run(forcing_ablation.main, forcing_ablation.parse([*common, *words]))

    return run


def test_arms_differ_in_what_they_are_named_after():
    training = Training("the student", "the teacher", (), None, Budget(1), Budget(2), Path("out"))
    first = str(training.run_folder(FEW_STEP, 5))
    stages = {name: list(stages_of(name, training, 5)) for name in ARMS}
    assert [[run.stage for run, _ in of] for of in stages.values()] == [
        ["few_step", "stable_forcing"],
        ["few_step", "full_context_forcing"],
        ["stable_forcing"],
        ["truncated_forcing"],
    ]
    assert [of[-1][0].start for of in stages.values()] == [first, first, "the student", "the student"]
    assert stages[FULL][0] == stages[FULL_CONTEXT][0], "one run of the stage that they share"
    assert len({of[-1][0].out for of in stages.values()}) == 4
    for of in stages.values():
        assert all("few_step.seed=5" in run.settings and run.cache == training.out / "cache" for run, _ in of)
        assert of[-1][0].teacher == "the teacher" and of[-1][1] == Budget(2)


def test_drift_is_the_mean_size_of_the_log_ratios():
    true = {"contrast": np.array([10.0]), "motion": np.array([4.0]), "sharpness": np.array([3.0])}
    looks = {name: 2 * (values + 0.1) - 0.1 for name, values in true.items()}
    looks["motion"] = (true["motion"] + 0.1) / 4 - 0.1
    same, off = (drifted([drift.Seen(of, [])], true) for of in (true, looks))
    assert same[DRIFT].tolist() == [[0.0]]
    np.testing.assert_allclose(off[DRIFT], [[np.log(2) * 4 / 3]])
    np.testing.assert_allclose(off["motion"], [[-np.log(4)]])


def test_a_contestant_is_measured_near_and_far(folder, listening_world):
    starts = drift.choose_starts(ClipStore(folder / "data"), LEVELS, 8, np.random.default_rng(0))
    trial = build(listening_world, starts, 8, 2)
    outcome, end = perform(listening_world, trial, seed=1, steps=1)
    again, _ = perform(listening_world, trial, seed=1, steps=1)
    other, _ = perform(listening_world, trial, seed=2, steps=1)
    assert outcome[PSNR].shape == (LEVELS, 16) and outcome[DRIFT].shape == (LEVELS, 2)
    assert outcome[RESPONSE].all() and len(end.features) == LEVELS
    assert np.array_equal(outcome[DRIFT], again[DRIFT]) and not np.array_equal(outcome[DRIFT], other[DRIFT])


def interval(mean: float, spread: float) -> report.Interval:
    return report.Interval(mean, mean - spread, mean + spread, 9)


@pytest.mark.parametrize(
    ("values", "last"),
    [
        (((-0.2, 0.1), (-0.3, 0.1), (-0.1, 0.05)), "the paper's order holds, every step beyond its interval"),
        (((-0.2, 0.1), (-0.3, 0.4), (-0.1, 0.05)), "the paper's order holds, 2 of 3 steps beyond their intervals"),
        (((0.2, 0.1), (-0.3, 0.4), (-0.1, 0.05)), "the paper's order does not hold: 2 of 3 steps go its way, 1 beyond"),
    ],
)
def test_the_verdict_says_whether_the_order_holds_and_how_surely(values, last):
    names = [f"{one} - {two}" for one, two in ((FULL, FULL_CONTEXT), (FULL_CONTEXT, NO_START), (NO_START, NEITHER))]
    lines = verdict({name: {DRIFT: interval(*value)} for name, value in zip(names, values, strict=True)})
    assert len(lines) == 4 and lines[-1].startswith(last)
    which = "further from" if values[0][0] > 0 else "closer to"
    assert lines[0].startswith(f"{FULL} is {which} the game than {FULL_CONTEXT}, beyond the interval: ")


def test_an_arm_goes_on_where_it_stopped_and_a_finished_one_is_left_alone(folder, tmp_path, monkeypatch):
    worlds, data = (str(folder / "student"), str(folder / "teacher")), (folder / "data",)
    short, longer = (Training(*worlds, data, None, Budget(1), Budget(steps), tmp_path) for steps in (1, 2))
    assert train_arm(FULL, short, 3).step == 1
    assert train_arm(FULL, longer, 3).step == 2
    assert len(list((tmp_path / "cache").iterdir())) == 1, "the recordings were encoded once"
    assert "stable_forcing.seed=3" in json.loads((tmp_path / "seed-3" / FULL / "run.json").read_text())["settings"]
    assert load_world(tmp_path / "seed-3" / FULL / "world").config.curriculum.stable_forcing.seed == 3
    monkeypatch.setattr(curriculum, "run_stage", lambda run, budget: pytest.fail(f"{run.out} was trained again"))
    assert train_arm(FULL, longer, 3).step == 2
    with pytest.raises(ValueError, match="budget of few_step is not used, but stable_forcing has already begun"):
        train_arm(FULL, replace(longer, few_step=Budget(2)), 3)


def test_the_command_trains_all_arms_and_reports(command, tmp_path, capsys):
    json_file, plot = tmp_path / "out.json", tmp_path / "out.png"
    assert command("--few-step-steps", "1", "--steps", "2", "--json", str(json_file), "--plot", str(plot)) == 0
    assert "the paper's order" in capsys.readouterr().out
    results = json.loads(json_file.read_text())["results"]
    assert {name: of["step"] for name, of in results["training"].items()} == {
        **{f"{name}, seed 0": 2 for name in ARMS},
        f"{FEW_STEP}, seed 0": 1,
    }
    euler = ["student, 2 Euler steps", "student, 3 Euler steps"]
    assert list(results["measures"]) == [*ARMS, FEW_STEP, *euler, drift.FLOOR, drift.CODEC, drift.TRUE]
    assert set(results["measures"][FULL]) == {*COLUMNS, drift.DISTANCE}
    assert "PSNR after 1 (dB)" in results["measures"][drift.FLOOR] and RESPONSE not in results["measures"][drift.FLOOR]
    drifts = {results["measures"][name][DRIFT]["mean"] for name in [*ARMS, FEW_STEP, *euler]}
    assert len(drifts) == 7, "every contestant is a world of its own"
    assert results["measures"][drift.FLOOR]["motion, x true"]["mean"] < 0.01, "a still picture does not move"
    assert len(results["differences"]) == 3 and plot.is_file()


def test_an_interrupted_training_says_how_to_go_on(command, capsys, monkeypatch):
    def stopped(run, budget):
        raise KeyboardInterrupt(f"interrupted in {run.stage} at step 1")

    monkeypatch.setattr(forcing_arms, "finish_stage", stopped)
    assert command("--few-step-steps", "2", "--steps", "1") == 2
    assert "interrupted in few_step at step 1; the same command goes on from there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1", "1"], "--seeds are [1, 1]; give each of them once"),
        (["--clips", "0"], "--clips is 0; give at least 1"),
        (["--many", "0"], "--many is 0; give at least 1"),
        (["--steps", "0"], "--steps is 0; give a number above 0"),
        (["--starts", "4"], "has 3 levels with two recordings"),
    ],
)
def test_impossible_numbers_end_in_one_sentence(command, capsys, words, message):
    assert command("--few-step-steps", "1", *([] if "--steps" in words else ["--steps", "1"]), *words) == 2
    assert message in capsys.readouterr().err


def test_a_student_without_a_teacher_is_refused(folder, capsys):
    settings = forcing_ablation.parse(["--student", str(folder / "student")])
    assert report.run(forcing_ablation.main, settings) == 2
    assert "give --student (a world or run of the autoregressive stage) and --teacher" in capsys.readouterr().err
