"""A run of transfer lives in the world that it says."""

from __future__ import annotations

import json

from gymnasium.vector import AutoresetMode

from agents.crippled_worlds import ShuffledActions
from agents.transfer import TransferRun


def test_a_run_lives_in_the_world_that_it_says(folder):
    def made(**changes):
        run = TransferRun(task="constant", world=str(folder), envs=2, episode_steps=5, **changes)
        with run.env(2, None, AutoresetMode.SAME_STEP, "cpu") as env:
            inner = env.unwrapped
            return isinstance(env, ShuffledActions), inner.episodes.temperature, inner.max_episode_steps

    assert made() == (False, 1.0, 5)
    assert made(temperature=0.5) == (False, 0.5, 5)
    assert made(shuffled=True) == (True, 1.0, 5)


def test_what_makes_a_run_another_one_is_written_down():
    plain, warm, deaf = TransferRun(), TransferRun(temperature=1.5), TransferRun(shuffled=True)
    told = [json.dumps(run.settings(), sort_keys=True) for run in (plain, warm, deaf)]
    assert len(set(told)) == 3
