"""Stable-Baselines3: the environment as it is, and the adapter that gives it all slots of one network."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecMonitor,
    VecTransposeImage,
)

import wp2env
from agents.sb3 import StableBaselinesVecEnv
from wp2env.tasks import Constant, RewardOut

pytestmark = pytest.mark.filterwarnings("error")
QUICK = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "device": "cpu", "seed": 0}


@pytest.fixture
def single(folder):
    return lambda **arguments: gymnasium.make(wp2env.ENV_ID, world=str(folder), **arguments)


@pytest.fixture
def adapted(folder):
    """Makes the adapter around a batch of slots with discrete actions."""

    def make(num_envs=2, **arguments):
        arguments = {"action_mode": "discrete", **arguments}
        return StableBaselinesVecEnv(gymnasium.make_vec(wp2env.ENV_ID, num_envs, world=str(folder), **arguments))

    return make


def idle(env):
    return np.zeros(env.num_envs, dtype=np.int64)


# The environment as it is.


@pytest.mark.parametrize("mode", ["multidiscrete", "discrete", "box"])
def test_stable_baselines_checker_finds_nothing_to_say(single, mode):
    check_env(single(action_mode=mode, render_mode="rgb_array"))


def test_ppo_learns_in_the_environment_without_any_wrapper(single):
    model = PPO("CnnPolicy", single(action_mode="multidiscrete"), **QUICK)
    model.learn(256)
    assert model.num_timesteps == 256


@pytest.mark.parametrize(
    ("algorithm", "mode", "arguments"),
    [
        (A2C, "box", {"n_steps": 8}),
        (DQN, "discrete", {"learning_starts": 8, "buffer_size": 64, "batch_size": 8}),
    ],
)
def test_other_algorithms_take_the_mode_made_for_them(single, algorithm, mode, arguments):
    model = algorithm("CnnPolicy", single(action_mode=mode), device="cpu", seed=0, **arguments)
    assert model.learn(16).num_timesteps == 16


def test_environments_in_processes_of_their_own_show_what_slots_show(single, adapted):
    workers = SubprocVecEnv([lambda: single(action_mode="discrete") for _ in range(2)], start_method="spawn")
    batch = adapted()
    try:
        for env in (workers, batch):
            env.seed(3)
        assert np.abs(workers.reset().astype(int) - batch.reset()).max() <= 1
        assert np.abs(workers.step(idle(batch))[0].astype(int) - batch.step(idle(batch))[0]).max() <= 1
    finally:
        workers.close()


# The adapter.


def test_the_adapter_keeps_the_contract_of_vec_env(adapted):
    env = adapted(3)
    observations = env.reset()
    assert observations.shape == (3, 64, 64, 3) and observations.dtype == np.uint8
    assert env.reset_infos[2]["step"] == 0 and env.reset_infos[2]["start_index"] in (0, 1)
    observations, rewards, dones, infos = env.step(idle(env))
    assert observations.shape == (3, 64, 64, 3)
    assert rewards.dtype == np.float32 and rewards.shape == dones.shape == (3,) and dones.dtype == bool
    assert [info["TimeLimit.truncated"] for info in infos] == [False] * 3
    assert not any("terminal_observation" in info or "episode" in info for info in infos)


def test_ppo_learns_on_the_slots_of_one_network(adapted):
    model = PPO("CnnPolicy", adapted(4, action_mode="multidiscrete", max_episode_steps=20), **QUICK)
    model.learn(256)
    assert model.num_timesteps == 256
    assert {episode["l"] for episode in model.ep_info_buffer} == {20}


def test_the_adapter_shows_what_a_list_of_single_environments_shows(single, adapted):
    """Through the ends of episodes: the first frame of the next one is the observation, the last one is in the info."""
    batch = adapted(2, max_episode_steps=2, task=Constant(0.5))
    dummy = DummyVecEnv(
        [lambda: Monitor(single(action_mode="discrete", max_episode_steps=2, task=Constant(0.5))) for _ in range(2)]
    )
    for env in (batch, dummy):
        env.seed(3)
    assert np.abs(batch.reset().astype(int) - dummy.reset()).max() <= 1
    for _ in range(3):
        (frames, rewards, dones, infos), expected = batch.step(idle(batch)), dummy.step(idle(batch))
        assert np.abs(frames.astype(int) - expected[0]).max() <= 1
        assert rewards.tolist() == expected[1].tolist() and dones.tolist() == expected[2].tolist()
        for info, theirs in zip(infos, expected[3], strict=True):
            assert info["TimeLimit.truncated"] == theirs["TimeLimit.truncated"] and info["step"] == theirs["step"]
            assert ("terminal_observation" in info) == ("terminal_observation" in theirs)
            if "terminal_observation" in info:
                last = info["terminal_observation"].astype(int)
                assert np.abs(last - theirs["terminal_observation"]).max() <= 1
                assert {key: info["episode"][key] for key in "rl"} == {key: theirs["episode"][key] for key in "rl"}


def test_an_episode_that_terminates_at_its_limit_is_not_called_truncated(adapted):
    """Otherwise the value of a state after the end would be added to its reward."""

    def arrives(context):
        return RewardOut(np.ones(2), (context.steps >= 2) & np.array([True, False]))

    env = adapted(2, task=arrives, max_episode_steps=2)
    env.reset()
    env.step(idle(env))
    _, _, dones, infos = env.step(idle(env))
    assert dones.all() and [info["TimeLimit.truncated"] for info in infos] == [False, True]


def test_the_info_of_an_end_is_about_the_episode_that_ended(adapted):
    env = adapted(1, max_episode_steps=1)
    env.reset()
    for _ in range(2):
        info = env.step(idle(env))[3][0]
        assert info["step"] == 1 and "reward_terms" in info and "start_index" not in info
        assert info["episode"]["l"] == 1 and info["episode"]["t"] >= 0


def test_vec_monitor_counts_the_same_episodes(adapted, tmp_path):
    env = VecMonitor(adapted(2, max_episode_steps=3, task=Constant(0.5)), str(tmp_path / "monitor.csv"))
    env.reset()
    episodes = [info["episode"] for _ in range(6) for info in env.step(idle(env))[3] if "episode" in info]
    env.close()
    assert [(episode["r"], episode["l"]) for episode in episodes] == [(1.5, 3)] * 4
    assert len((tmp_path / "monitor.csv").read_text().splitlines()) == 2 + 4


def test_the_terminal_observation_goes_through_the_wrappers_for_pictures(adapted):
    env = VecTransposeImage(VecFrameStack(adapted(1, max_episode_steps=1), n_stack=2))
    assert env.reset().shape == (1, 6, 64, 64)
    assert env.step(idle(env))[3][0]["terminal_observation"].shape == (6, 64, 64)


def test_evaluate_policy_counts_the_return_of_whole_episodes(adapted):
    env = VecMonitor(adapted(2, max_episode_steps=3, task=Constant(0.5)))
    model = PPO("CnnPolicy", env, **QUICK)
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=4, return_episode_rewards=True)
    assert returns == [1.5] * 4 and lengths == [3] * 4


def test_seeds_and_options_are_taken_by_the_next_reset_alone(adapted):
    env, twin = adapted(8), adapted(8)
    assert env.seed(5) == twin.seed(5) == list(range(5, 13))
    env.set_options({"start_index": 1})
    env.reset(), twin.reset()
    assert [info["start_index"] for info in env.reset_infos] == [1] * 8
    assert np.array_equal(env.reset(), twin.reset())  # the same streams go on, and the starts are drawn again
    assert {info["start_index"] for info in env.reset_infos} == {0, 1}


def test_options_may_differ_from_slot_to_slot(adapted):
    env = adapted(2)
    env.set_options([{"start_index": 1, "caption": {"event": "it rains"}}, {"start_index": 0}])
    env.reset()
    assert [info["start_index"] for info in env.reset_infos] == [1, 0]
    assert [info["caption"]["event"] for info in env.reset_infos] == ["it rains", "None"]


def test_methods_and_attributes_reach_the_environment_and_the_slots_named(adapted):
    env = adapted(3)
    env.reset()
    env.env_method("set_event", "it rains", indices=[0, 2])
    env.env_method("set_caption", scene="a beach", indices=1)
    captions = env.get_attr("captions")[0]
    assert [caption.event for caption in captions] == ["it rains", "None", "it rains"]
    assert [caption.scene == "a beach" for caption in captions] == [False, True, False]
    assert env.get_attr("obs_mode", indices=[0, 1]) == ["frame", "frame"] and not env.has_attr("horsepower")
    env.set_attr("info_frames", True)
    assert "frames" in env.step(idle(env))[3][0]
    assert env.env_is_wrapped(Monitor) == [False] * 3


def test_gymnasiums_vector_wrappers_do_not_hide_the_environment(folder):
    inner = gymnasium.make_vec(wp2env.ENV_ID, 2, world=str(folder), action_mode="discrete", max_episode_steps=1)
    env = StableBaselinesVecEnv(RecordEpisodeStatistics(inner))
    env.reset()
    env.env_method("set_event", "it rains", indices=0)
    assert [caption.event for caption in env.get_attr("captions")[0]] == ["it rains", "None"]
    assert env.step(idle(env))[2].all()


def test_pictures_are_tiled_for_videos(adapted):
    env = adapted(2, render_mode="rgb_array")
    observations = env.reset()
    assert np.array_equal(env.get_images(), observations)
    assert np.array_equal(env.render(), np.concatenate(observations))


def test_a_window_is_the_environments_own(adapted, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = adapted(2, render_mode="human")
    env.reset()
    assert env.render() is None and env.render_mode == "human"
    env.close()


@pytest.mark.parametrize("mode", ["NEXT_STEP", "DISABLED"])
def test_other_autoreset_modes_are_refused(adapted, mode):
    with pytest.raises(ValueError, match="make the environment with autoreset_mode=SAME_STEP"):
        adapted(autoreset_mode=mode)


def test_tensors_are_refused(adapted):
    with pytest.raises(ValueError, match="the environment gives tensors; make it with output='numpy'"):
        adapted(output="torch")


def test_gymnasiums_own_vector_environments_are_taken_too(folder):
    envs = gymnasium.make_vec(
        wp2env.ENV_ID, 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": "SameStep"},
        world=str(folder), action_mode="discrete", max_episode_steps=2,
    )  # fmt: skip
    env = StableBaselinesVecEnv(envs)
    env.reset()
    env.step(idle(env))
    info = env.step(idle(env))[3][1]
    assert info["TimeLimit.truncated"] and info["step"] == 2 and info["terminal_observation"].shape == (64, 64, 3)
