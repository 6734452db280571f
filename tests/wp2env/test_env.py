"""The single environment: Gymnasium's contract, seeds, rewards."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

import wp2env
from wp2env.keyboard import ARROW_LEFT
from wp2env.spaces import ACTION_MODES
from wp2env.tasks import Constant, RewardOut

pytestmark = pytest.mark.filterwarnings("error")


def registered(folder, **arguments):
    return gymnasium.make(wp2env.ENV_ID, world=str(folder), **arguments)


# Gymnasium's contract.


@pytest.mark.parametrize("mode", sorted(ACTION_MODES))
def test_gymnasiums_checker_finds_nothing_to_say(folder, mode, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # the checker opens every render mode, the window too
    check_env(registered(folder, action_mode=mode).unwrapped)


def test_gymnasiums_checker_passes_with_clips_and_one_action_per_latent(chunked_folder, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    extras = {"obs_mode": "clip", "per_latent_actions": True, "info_frames": True}
    check_env(registered(chunked_folder, **extras).unwrapped)


@pytest.mark.parametrize("mode", sorted(ACTION_MODES))
def test_the_idle_action_and_the_keys_are_actions_of_the_space(make, mode):
    env = make(action_mode=mode)
    env.reset(seed=0)
    assert env.idle_action() in env.action_space
    assert env.get_keys_to_action()[(ARROW_LEFT,)] in env.action_space


@pytest.mark.parametrize("mode", ["dict", "multidiscrete", "discrete"])
def test_gymnasiums_player_takes_the_keys(folder, mode, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr("matplotlib.use", lambda backend: None)  # Gymnasium wants a window, which there may be none for
    import pygame
    from gymnasium.utils.play import play

    rows = []

    def watch(before, after, action, *answer):
        rows.append(action)
        pygame.event.post(
            pygame.event.Event(pygame.KEYDOWN, key=pygame.K_w) if len(rows) == 1 else pygame.event.Event(pygame.QUIT)
        )

    env = registered(folder, action_mode=mode, render_mode="rgb_array")
    env.reset(seed=0, options={"start_index": 0})
    idle, forward = env.unwrapped.idle_action(), env.unwrapped.get_keys_to_action()[(pygame.K_w,)]
    play(env, noop=idle, seed=0, callback=watch, fps=1000)
    assert all(map(np.array_equal, map(repr, rows), map(repr, (idle, forward))))


def test_the_id_brings_its_package_along(folder):
    assert gymnasium.make("wp2env:WorldPlay2-v0", world=str(folder)).spec.id.endswith("WorldPlay2-v0")


def test_the_idle_action_moves_nothing_and_keeps_the_third_person(make):
    env = make()
    env.reset(seed=0, options={"perspective": 0})
    env.step(env.idle_action())
    assert env.idle_action()["perspective"] == 0 and env.idle_action()["longitudinal"] == 1


def test_an_episode_made_by_gymnasium_is_truncated_after_256_steps_or_as_told(folder):
    assert registered(folder).spec.max_episode_steps == 256
    env = registered(folder, max_episode_steps=3)
    env.reset(seed=0)
    ends = [env.step(env.unwrapped.idle_action())[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_an_environment_made_without_gymnasium_keeps_its_own_limit(make):
    env = make(max_episode_steps=1)
    env.reset(seed=0)
    assert env.step(env.idle_action())[2:4] == (False, True)
    with pytest.raises(ResetNeeded, match="have ended; reset them first"):
        env.step(env.idle_action())
    assert env.reset()[1]["step"] == 0


def test_rewards_and_ends_are_pythons_own_numbers(make):
    """Gymnasium's checker and JSON writers take no NumPy scalars."""
    env = make(task=lambda context: np.float32(0.5))
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.idle_action())
    assert [type(value) for value in (reward, terminated, truncated, info["step"])] == [float, bool, bool, int]


def test_episode_statistics_of_gymnasium_count_the_rewards(folder):
    env = RecordEpisodeStatistics(registered(folder, task=Constant(0.5), max_episode_steps=4))
    env.reset(seed=0)
    info = [env.step(env.unwrapped.idle_action()) for _ in range(4)][-1][-1]
    assert (info["episode"]["r"], info["episode"]["l"]) == (2.0, 4)


def test_the_spec_survives_json_and_makes_the_same_episode(folder, actions, play, same):
    env = registered(folder, action_mode="box", max_episode_steps=5)
    twin = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert twin.spec == env.spec
    moves = actions(env.action_space, 5)
    assert same((env.reset(seed=2), play(env, moves)), (twin.reset(seed=2), play(twin, moves)))


def test_importing_the_environment_only_registers_it():
    code = "import sys, wp2env, gymnasium; print('WorldPlay2-v0' in gymnasium.registry, *sys.modules)"
    known, *modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"torch", "cv2", "pygame", "stable_baselines3", "vizdoom", "diffusers", "transformers", "fastapi"}
    assert known == "True" and not heavy & {name.partition(".")[0] for name in modules}


# Seeds.


def test_equal_seeds_give_equal_episodes_one_after_the_other_too(make, actions, play, same):
    env, twin = make(), make()
    moves = actions(env.action_space, 5)
    for seed in (3, None):  # the second episode draws from the stream that the seed began
        assert same((env.reset(seed=seed), play(env, moves)), (twin.reset(seed=seed), play(twin, moves)))


def test_seeds_choose_starts_and_noise(make):
    env = make()
    episodes = [env.reset(seed=seed)[1]["start_index"] for seed in range(12)]
    assert set(episodes) == {0, 1, 2}
    noise = []
    for seed in (0, 1):
        env.reset(seed=seed, options={"start_index": 0})
        noise.append(env.step(env.idle_action())[0])
    assert not np.array_equal(*noise)


def test_an_unseeded_episode_differs_from_the_one_before(make):
    env = make()
    frames = []
    for seed in (0, None):
        env.reset(seed=seed, options={"start_index": 0})
        frames.append(env.step(env.idle_action())[0])
    assert not np.array_equal(*frames)


def test_a_start_of_the_users_does_not_shift_the_episodes_after_it(make, same):
    env, twin = make(), make()
    env.reset(seed=0)
    twin.reset(seed=0, options={"text_only": True, "caption": {"scene": "a hall"}})
    assert same(env.reset(), twin.reset())


def test_a_generator_set_by_hand_draws_the_episodes(make, same):
    env, twin = make(), make()
    env.np_random, twin.np_random = np.random.default_rng(5), np.random.default_rng(5)
    assert env.np_random_seed == -1 and same(env.reset(), twin.reset())


def test_the_seed_is_remembered_and_the_generator_is_gymnasiums(make):
    env = make()
    env.reset(seed=17)
    assert env.np_random_seed == 17
    env.np_random.random()  # whoever draws from it shifts the next episode's start and noise, as everywhere


def test_temperature_0_leaves_nothing_to_chance(make):
    frames = []
    for seed in (0, 1):
        env = make(temperature=0)
        env.reset(seed=seed, options={"start_index": 0})
        frames.append(env.step(env.idle_action())[0])
    assert np.array_equal(*frames)


def test_sampling_steps_change_the_picture(make):
    frames = []
    for steps in (1, 3):
        env = make(sampling_steps=steps)
        env.reset(seed=0)
        frames.append(env.step(env.idle_action())[0])
    assert not np.array_equal(*frames)


def test_bfloat16_shows_almost_the_same(make):
    frames = []
    for dtype in ("float32", "bfloat16"):
        env = make(dtype=dtype)
        env.reset(seed=0)
        frames.append(env.step(env.idle_action())[0].astype(float))
    assert 0 < np.abs(frames[0] - frames[1]).mean() < 4


def test_actions_change_the_picture(make):
    env = make(action_mode="discrete")
    frames = []
    for action in (0, 5):
        env.reset(seed=0)
        frames.append(env.step(action)[0])
    assert not np.array_equal(*frames)


# Rewards.


def test_exploration_pays_by_default_and_tells_its_terms(make, actions, play):
    env = make()
    env.reset(seed=0)
    answers = play(env, actions(env.action_space, 5))
    assert all(answer[1] == answer[4]["reward_terms"]["novelty"] >= 0 for answer in answers)
    assert sum(answer[1] for answer in answers) > 0 and answers[0][4]["reward_source"] == "exploration"


def test_a_task_that_terminates_ends_the_episode(make):
    def one_step(context):
        return RewardOut(np.ones(1), context.steps >= 1, confidence=np.full(1, 0.5))

    env = make(task=one_step)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.idle_action())
    assert (reward, terminated, truncated) == (1.0, True, False) and info["reward_confidence"] == 0.5
    with pytest.raises(ResetNeeded, match="have ended"):
        env.step(env.idle_action())
