"""Stable-Baselines3 in the true game: what learns in a generated world learns there, unchanged."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

import wp2env
from agents.sb3 import StableBaselinesVecEnv
from world_model.data.doom.task_starts import record_task_starts
from wp2env.game_starts import bank_of
from wp2env.spaces import DiscreteActions

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def starts():
    return bank_of(list(record_task_starts("explore", 2, split="test")))


@pytest.mark.parametrize("mode", ["multidiscrete", "box"])
def test_stable_baselines_checker_finds_nothing_to_say(starts, mode):
    env = gymnasium.make(wp2env.TRUE_GAME_ID, starts=starts, action_mode=mode, render_mode="rgb_array")
    check_env(env)
    env.close()


def test_the_adapter_takes_it_and_an_agent_learns(starts):
    games = gymnasium.make_vec(
        wp2env.TRUE_GAME_ID, 2, starts=starts, action_mode="discrete", max_episode_steps=6, task="explore"
    )
    turn = DiscreteActions.menu.index("turn left")
    env = StableBaselinesVecEnv(games)
    env.seed(0)
    env.reset()
    for _ in range(6):
        observations, _, dones, infos = env.step(np.full(2, turn))
    assert dones.all() and infos[0]["TimeLimit.truncated"] and infos[0]["episode"]["l"] == 6
    assert (infos[0]["terminal_observation"] != observations[0]).any()
    model = PPO("CnnPolicy", env, n_steps=16, batch_size=16, n_epochs=1, device="cpu", seed=0)
    assert model.learn(32).num_timesteps == 32
    env.close()
