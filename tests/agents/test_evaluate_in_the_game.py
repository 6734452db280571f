"""Policies in the true game: the scripted one finds the ball there, and slots make no difference."""

from __future__ import annotations

import pytest
from gymnasium.vector import AutoresetMode

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from agents.evaluate import evaluate
from agents.places import DEFAULT_TASK, make_env
from agents.policies import load_policy
from world_model.data.doom.task_starts import record_task_starts
from wp2env.game_starts import bank_of
from wp2env.tasks import RewardOut


@pytest.fixture(scope="module")
def starts():
    return bank_of(list(record_task_starts(DEFAULT_TASK, 4, split="test")))


def reaches(context):
    """The engine's own word on the task."""
    reward, ended = context.truth[DEFAULT_TASK]
    return RewardOut(reward, ended, {"success": reward})


@pytest.fixture
def play(starts):
    def run(name, slots):
        env = make_env("game", slots, task=reaches, starts=starts, autoreset_mode=AutoresetMode.DISABLED)
        try:
            return evaluate(load_policy(name, num_envs=slots, seed=0), env, range(4), max_steps=24, seed=0)
        finally:
            env.close()

    return run


def test_the_scripted_policy_reaches_the_ball_and_does_so_alike_in_any_number_of_slots(play):
    one, two = play("scripted", 1), play("scripted", 2)
    assert one.successes.tolist() == two.successes.tolist() and one.lengths.tolist() == two.lengths.tolist()
    assert one.successes.sum() >= 3


def test_one_that_only_turns_does_not(play):
    assert not play("broken:spin", 2).successes.any()
