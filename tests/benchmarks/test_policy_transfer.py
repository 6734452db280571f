"""The arms of transfer with climbers that need no training, on ladders that stand in for the game and the world."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import arena, policy_transfer, report
from benchmarks.arena import Arena
from benchmarks.policy_transfer import FROM_MOMENTS, IN_GAME, IN_WORLD, RANDOM, SHUFFLED, School, label, ratio
from wp2env.starts import read_bank

CHANCES = {"random": 0.1, "scripted": 1.0, "clone": 0.5, "game": 0.9, "world": 0.8, "world-shuffled": 0.1}


@pytest.fixture
def trainings():
    """What was trained: run, budgets and folder."""
    return []


@pytest.fixture
def command(small_world, tmp_path, monkeypatch, ladder, climber, trainings):
    """Runs the command; a policy's name says how well it climbs."""

    def train_to(run, budgets, out, device):
        trainings.append((run, list(budgets), out.name))
        return {budget: f"{run.place}{'-shuffled' * run.shuffled}" for budget in budgets}

    def make(self, place, temperature=1.0, world=None):
        return ladder(self.envs, 4 if place == "game" else 3)

    budgets = pytest.importorskip("agents.budgets", reason="Stable-Baselines3 is an optional extra")
    monkeypatch.setattr(budgets, "train_to", train_to)
    monkeypatch.setattr(Arena, "make", make)
    monkeypatch.setattr(arena, "load_policy", lambda text, num_envs, seed: climber(CHANCES[text], num_envs, seed))
    monkeypatch.setattr(arena, "cloned", lambda *_: "clone")
    monkeypatch.setattr(policy_transfer, "real_steps", lambda data: 70)

    def moments(store, task, count, frames, generator):
        bank = read_bank(small_world / "test.safetensors")
        return replace(bank, origins=None)

    monkeypatch.setattr(policy_transfer, "ClipStore", lambda data: None)
    monkeypatch.setattr("wp2env.recorded_starts.starts_on_the_way", moments)

    def run(*words):
        starts = str(small_world / "test.safetensors")
        common = [
            "--moments",
            "0",
            "--world",
            str(small_world),
            "--starts",
            starts,
            "--train-starts",
            starts,
            "--data",
            str(tmp_path),
        ]
        common += ["--out", str(tmp_path / "out"), "--episodes", "16", "--episode-steps", "8"]
        return report.run(policy_transfer.main, policy_transfer.parse([*common, *words]))

    return run


def test_the_command_trains_all_arms_and_reports(command, trainings, tmp_path, capsys):
    target, plot = tmp_path / "transfer.json", tmp_path / "transfer.png"
    words = ["--steps", "100", "50", "--seeds", "0", "1", "--json", str(target), "--plot", str(plot), "--sweep"]
    assert command(*words) == 0
    results = json.loads(target.read_text())["results"]
    arms = [label(IN_WORLD, 50), label(IN_WORLD, 100), label(IN_GAME, 50), label(IN_GAME, 70), label(IN_GAME, 100)]
    arms += ["behaviour cloning", "scripted", RANDOM, label(SHUFFLED, 50), label(SHUFFLED, 100)]
    assert list(results["arms"]) == arms
    row = results["arms"][label(IN_WORLD, 100)]
    assert row["success, game"]["count"] == 2 * 16 and row["success, world - game"]["mean"] >= 0
    assert results["arms"]["scripted"]["success, game"]["mean"] == 1
    assert len(results["ratios"]) == 6 and plot.stat().st_size > 1000
    assert results["ratios"][f"{label(IN_WORLD, 50)} / {label(IN_GAME, 50)}"]["mean"] > 0.7
    said = capsys.readouterr().out
    assert "wanted: at least 70%" in said and "wanted: about 1: it must fall to random" in said

    plain = [(run, budgets) for run, budgets, _ in trainings[:6]]
    assert [run.seed for run, _ in plain] == [0, 1] * 3
    assert [budgets for _, budgets in plain] == [[50, 100]] * 2 + [[50, 70, 100]] * 2 + [[50, 100]] * 2
    assert [(run.place, run.shuffled) for run, _ in plain[::2]] == [("world", False), ("game", False), ("world", True)]
    assert all(run.episode_steps == 8 and run.temperature == 1 for run, _ in plain)


def test_the_sweep_changes_one_thing_at_a_time_and_takes_over_what_is_trained(command, trainings, tmp_path):
    target = tmp_path / "transfer.json"
    words = ["--steps", "50", "--seeds", "3", "--sweep", "--temperatures", "0.5", "1", "--horizons", "4"]
    assert command(*words, "--json", str(target)) == 0
    swept = [(run.temperature, run.episode_steps, folder) for run, _, folder in trainings[3:]]
    assert [entry[:2] for entry in swept] == [(0.5, 8), (1.0, 8), (1.0, 4)]
    assert swept[1][2] == trainings[0][2] and len({folder for *_, folder in swept}) == 3
    assert list(json.loads(target.read_text())["results"]["sweep"]) == [
        label("temperature 0.5, episodes of 8 steps", 50),
        label("temperature 1, episodes of 8 steps", 50),
        label("temperature 1, episodes of 4 steps", 50),
    ]


def test_imagined_episodes_go_on_from_recorded_moments(command, trainings, tmp_path):
    target = tmp_path / "transfer.json"
    words = ["--steps", "50", "--seeds", "0", "1", "--moments", "9", "--moment-steps", "3", "--json", str(target)]
    assert command(*words) == 0
    run, budgets, folder = trainings[2]
    assert (run.place, run.episode_steps, budgets, run.shuffled) == ("world", 3, [50], False)
    assert run.starts == str(tmp_path / "out" / "moments-9-seed0.safetensors") and read_bank(run.starts).origins is None
    assert folder != trainings[0][2] and trainings[3][0].seed == 1
    results = json.loads(target.read_text())["results"]
    assert results["arms"][label(FROM_MOMENTS, 50)]["success, game"]["count"] == 2 * 16
    assert all(f"{label(FROM_MOMENTS, 50)} / {under}" in results["ratios"] for under in (label(IN_GAME, 50), RANDOM))
    assert sum(pair.startswith(FROM_MOMENTS) for pair in results["ratios"]) == 2


def test_the_sweep_goes_on_from_recorded_moments_where_there_are_any(command, trainings):
    words = ["--steps", "50", "--seeds", "0", "--moments", "9", "--moment-steps", "3"]
    assert command(*words, "--sweep", "--temperatures", "2", "--horizons", "3", "5") == 0
    moments = trainings[1][0].starts
    swept = [(run.starts, run.temperature, run.episode_steps) for run, *_ in trainings[4:]]
    assert swept == [(moments, 2.0, 3), (moments, 1.0, 3), (moments, 1.0, 5)]


def test_no_two_trainings_share_a_folder(command, trainings):
    assert command("--steps", "50", "--seeds", "0", "1", "--moments", "9") == 0
    folders = [folder for *_, folder in trainings]
    assert len(set(folders)) == len(folders) == 8


def test_an_interrupted_training_says_how_to_go_on(command, capsys, monkeypatch):
    def stopped(*_, **__):
        raise InterruptedError("the training in x was interrupted after 1 of 2 steps; the same command goes on")

    monkeypatch.setattr(School, "teach", stopped)
    assert command() == 2
    assert "interrupted after 1 of 2 steps; the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0"], "--steps is 0; give at least 1"),
        (["--steps", "5", "5"], "--steps are [5, 5]; give each of them once"),
        (["--seeds", "-1"], "--seeds are [-1]; give numbers from 0 on"),
        (["--seeds", "1", "1"], "--seeds are [1, 1]; give each of them once"),
        (["--horizons", "0"], "--horizons is 0; give at least 1"),
        (["--temperatures", "-1"], "--temperatures are [-1.0]; give numbers of 0 or more"),
        (["--temperatures", "nan"], "give numbers of 0 or more"),
        (["--moments", "-1"], "--moments is -1; give a number, or 0 to leave that arm out"),
        (["--moment-steps", "0"], "--moment-steps is 0; give at least 1"),
        (["--episode-steps", "0"], "--episode-steps is 0; give at least 1"),
    ],
)
def test_impossible_numbers_end_in_one_sentence(command, capsys, words, message):
    assert command(*words) == 2
    assert message in capsys.readouterr().err


def test_a_ratio_has_an_interval_over_seeds_and_starts():
    half, all_, none = np.tile([0.0, 1.0], (3, 8)), np.ones((3, 16)), np.zeros((3, 16))
    found = ratio(half, all_)
    assert found.mean == 0.5 and 0.2 < found.low < 0.5 < found.high < 0.8
    same = ratio(half, half)
    assert same.low == pytest.approx(1) == same.high, "the same starts are drawn for both"
    assert ratio(none, all_).high == 0
    assert ratio(half, none).mean == pytest.approx(0.5 / (0.5 / 48)), "no success counts as half a one"
    seeds = np.repeat([[0.0], [0.5], [1.0]], 16, axis=1)
    assert ratio(seeds, all_).high > 0.8, "seeds are drawn again, too"
