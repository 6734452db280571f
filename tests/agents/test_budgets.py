"""One training gives an agent at every budget, goes on where it stopped, and says what it did not keep."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from agents import algorithms, budgets, train
from agents.budgets import train_to
from agents.policies import checkpoints
from agents.policies.card import read_card
from agents.train import AgentRun


@pytest.fixture
def run(monkeypatch, corridor):
    """A run with rollouts of 16 steps in a corridor."""

    def make(place, num_envs, *, task, autoreset_mode, **more):
        return corridor(num_envs, mode=autoreset_mode)

    monkeypatch.setattr(train, "make_env", make)
    monkeypatch.setitem(algorithms.SETTINGS["ppo"], "n_steps", 8)
    return AgentRun(task="explore", envs=2)


def steps(found):
    return {budget: read_card(folder).steps for budget, folder in found.items()}


def test_a_budget_is_met_by_the_first_whole_rollout_after_it(run, tmp_path):
    found = train_to(run, [40, 0, 16], tmp_path / "run")
    assert steps(found) == {0: 0, 16: 16, 40: 48}


def test_what_is_trained_is_left_alone_and_what_is_missing_is_trained_on(run, tmp_path, monkeypatch):
    first = train_to(run, [16, 32], tmp_path / "run")
    longer = train_to(run, [16, 32, 64], tmp_path / "run")
    assert steps(longer) == {16: 16, 32: 32, 64: 64} and first.items() <= longer.items()
    monkeypatch.setattr(budgets, "train_agent", None)
    assert train_to(run, [32], tmp_path / "run") == {32: first[32]}


def test_a_budget_that_was_passed_without_being_kept_is_refused(run, tmp_path):
    train_to(run, [64], tmp_path / "run")
    with pytest.raises(ValueError, match="was trained with other budgets and kept nothing at 16 steps"):
        train_to(run, [16, 64], tmp_path / "run")


def test_another_run_in_the_same_folder_is_refused(run, tmp_path):
    train_to(run, [16], tmp_path / "run")
    with pytest.raises(ValueError, match="was begun with seed 0, not 1"):
        train_to(replace(run, seed=1), [16], tmp_path / "run")


def test_an_interrupted_training_goes_on(run, tmp_path, monkeypatch, corridor):
    class Stopping(corridor):
        def step(self, actions):
            os.kill(os.getpid(), signal.SIGINT)
            return super().step(actions)

    whole = train.make_env
    monkeypatch.setattr(train, "make_env", lambda place, n, *, autoreset_mode, **more: Stopping(n, mode=autoreset_mode))
    with pytest.raises(InterruptedError, match="interrupted after 0 of 16 steps; the same command goes on"):
        train_to(run, [16], tmp_path / "run")
    assert len(checkpoints(tmp_path / "run")) == 1
    monkeypatch.setattr(train, "make_env", whole)
    assert steps(train_to(run, [16], tmp_path / "run")) == {16: 16}
