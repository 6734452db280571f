"""Training keeps what it should: checkpoints, counts, evaluations; it goes on, and refuses to mix two runs."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    DiagGaussianDistribution,
    MultiCategoricalDistribution,
)

from agents import algorithms, train
from agents.algorithms import make_algorithm
from agents.keeping import EVALUATIONS, Keeping, Validation
from agents.policies import checkpoints, load_policy
from agents.policies.card import ALGORITHMS, read_card
from agents.policies.simple import slot_generators
from agents.policies.trained import draw
from agents.sb3 import StableBaselinesVecEnv
from agents.train import AgentRun, train_agent, untrained_agent
from wp2env.spaces import ChunkActions, Turns


@pytest.fixture
def in_a_corridor(monkeypatch, corridor):
    """Trains in a place that is drawn by hand, which takes less time than any world; a task is called at each step."""

    class Place(corridor):
        def step(self, actions):
            if callable(self.task):
                self.task()
            return super().step(actions)

    def make(place, num_envs, *, task, autoreset_mode, **more):
        env = Place(num_envs, mode=autoreset_mode)
        env.task = task
        return env

    monkeypatch.setattr(train, "make_env", make)


@pytest.fixture
def run(in_a_corridor):
    return AgentRun(task="explore", envs=2)


@pytest.fixture
def true_run(folder):
    """A run of few and short episodes in the tiny world."""
    return AgentRun(task="explore", world=str(folder), envs=2, episode_steps=4)


@pytest.fixture(autouse=True)
def short_rollouts(monkeypatch):
    for name, length in (("ppo", 8), ("a2c", 8), ("recurrent-ppo", 8)):
        monkeypatch.setitem(algorithms.SETTINGS[name], "n_steps", length)
    monkeypatch.setitem(algorithms.SETTINGS["dqn"], "learning_starts", 8)
    monkeypatch.setitem(algorithms.SETTINGS["dqn"], "buffer_size", 64)


def weights(folder, envs=2):
    model = load_policy(str(folder), num_envs=envs, seed=0).model
    return {name: value.numpy().copy() for name, value in model.policy.state_dict().items()}


def steps_of(out):
    return [read_card(path).steps for path in checkpoints(out)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_learns_is_read_again_and_goes_on(run, tmp_path, algorithm):
    if algorithm == "recurrent-ppo":
        pytest.importorskip("sb3_contrib")
    run, out = replace(run, algorithm=algorithm), tmp_path / "agent"
    first = train_agent(run, 16, out)
    assert read_card(first).steps == 16 and read_card(first).algorithm == algorithm
    second = train_agent(run, 32, out)
    assert steps_of(out) == [16, 32] and second.parent == out
    model = load_policy(str(out), num_envs=3, seed=0).model
    assert model.num_timesteps == 32
    if algorithm == "dqn":  # gathers 8 steps anew after each pause, however many there were
        train_agent(run, 48, out)
        assert load_policy(str(out), num_envs=3, seed=0).model.learning_starts == 8 + 32
    assert any((weights(first)[name] != value).any() for name, value in weights(second).items())
    assert (out / "logs").is_dir()


def test_an_agent_learns_in_a_generated_world(true_run, tmp_path, folder):
    validation = Validation(str(folder / "starts.safetensors"), episodes=2, every=16)
    newest = train_agent(true_run, 16, tmp_path / "agent", validation=validation)
    assert read_card(newest).frame_size == (64, 64) and read_card(newest).world == str(folder)
    assert json.loads((tmp_path / "agent" / EVALUATIONS).read_text())["evaluations"][0]["length"] == 4


@pytest.mark.parametrize("mode", ["discrete", "multidiscrete", "box"])
def test_a_policy_acts_alike_after_it_was_written_and_read(true_run, tmp_path, mode):
    folder = train_agent(replace(true_run, action_mode=mode), 16, tmp_path / "agent")
    frames = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)

    def act(path, seed=0):
        policy = load_policy(str(path), num_envs=3, seed=seed)
        policy.reset(np.ones(3, dtype=bool))
        return np.stack([policy.act(frames) for _ in range(4)])

    first = act(folder)
    assert np.array_equal(first, act(folder / "policy.zip")) and np.array_equal(first, act(folder.parent))
    assert not np.array_equal(first, act(folder, seed=1))
    assert all(action in ChunkActions(mode, Turns(), 1, False).space for action in first[:, 0])


@pytest.mark.parametrize("kind", ["categorical", "multicategorical", "normal"])
def test_actions_are_drawn_as_the_distribution_says(kind):
    slots, draws = 2, 3000
    shares = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    if kind == "categorical":
        distribution = CategoricalDistribution(3).proba_distribution(shares.log())
    elif kind == "multicategorical":
        distribution = MultiCategoricalDistribution([3, 3]).proba_distribution(torch.cat([shares.log()] * 2, 1))
    else:
        distribution = DiagGaussianDistribution(1).proba_distribution(shares[:, :1] - 0.5, torch.full((2, 1), -2.0))
    generators = slot_generators(slots, 0)
    drawn = np.stack([draw(distribution, generators) for _ in range(draws)])
    if kind == "normal":
        assert drawn.mean((0, 2)) == pytest.approx([0.2, -0.4], abs=0.02)
        assert drawn.std((0, 2)) == pytest.approx(np.exp([-2, -2]), abs=0.02)
    else:
        digits = drawn.reshape(draws, slots, -1)
        for digit in range(digits.shape[2]):
            counted = np.stack([np.bincount(digits[:, slot, digit], minlength=3) for slot in range(slots)]) / draws
            assert counted == pytest.approx(shares.numpy(), abs=0.03)


def test_checkpoints_are_written_when_they_are_due_and_told(run, tmp_path):
    told = []
    keeping = Keeping(every=32, at=(0, 16), call=lambda folder: told.append(read_card(folder).steps))
    train_agent(run, 80, tmp_path / "agent", keeping=keeping)
    assert told == steps_of(tmp_path / "agent") == [0, 16, 32, 64, 80]
    assert not list((tmp_path / "agent").glob(".step-*"))


def test_the_same_settings_learn_the_same_and_another_seed_does_not(run, tmp_path):
    first, twin = (weights(train_agent(run, 32, tmp_path / name)) for name in ("one", "two"))
    other = weights(train_agent(replace(run, seed=1), 32, tmp_path / "other"))
    assert all(np.array_equal(value, twin[name]) for name, value in first.items())
    assert any(not np.array_equal(value, other[name]) for name, value in first.items())


def test_an_untrained_agent_is_the_one_that_training_begins_with(run, tmp_path):
    straight = train_agent(run, 32, tmp_path / "straight", keeping=Keeping(at=(0,)))
    before = untrained_agent(run, tmp_path / "agent")
    assert read_card(before).steps == 0 and untrained_agent(run, tmp_path / "agent") == before
    for name, value in weights(straight.parent / before.name).items():
        assert np.array_equal(value, weights(before)[name])
    train_agent(run, 32, tmp_path / "agent")
    assert steps_of(tmp_path / "agent") == [0, 32]


def test_a_finished_run_is_left_as_it_is(run, tmp_path):
    folder = train_agent(run, 16, tmp_path / "agent")
    written = (folder / "policy.zip").stat().st_mtime_ns
    assert train_agent(run, 16, tmp_path / "agent") == folder
    assert (folder / "policy.zip").stat().st_mtime_ns == written


def signalling(at: int, number: int):
    """A task that asks this process to stop in its step number ``at``."""
    calls = []

    def task():
        calls.append(None)
        if len(calls) == at:
            os.kill(os.getpid(), number)

    return task


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_a_checkpoint_of_what_was_learned_and_the_run_goes_on(run, tmp_path, number):
    """It comes in the middle of the third rollout, which then does not count."""
    out, before = tmp_path / "agent", signal.getsignal(number)
    folder = train_agent(replace(run, task=signalling(20, number)), 64, out)
    assert read_card(folder).steps == 32 and steps_of(out) == [32]
    assert signal.getsignal(number) is before
    last = train_agent(replace(run, task=signalling(-1, number)), 64, out)
    assert read_card(last).steps == 64 and load_policy(str(last), num_envs=2, seed=0).model.num_timesteps == 64


def test_what_a_killed_run_left_half_written_is_dropped(run, tmp_path):
    out = tmp_path / "agent"
    train_agent(run, 16, out)
    (out / ".step-00000032.99").mkdir()
    assert steps_of(out) == [16]
    train_agent(run, 32, out)
    assert steps_of(out) == [16, 32] and not list(out.glob(".step-*"))


def test_validation_goes_on_along_the_way_and_forgets_what_is_to_come(run, tmp_path):
    out, validation = tmp_path / "agent", Validation("starts.safetensors", episodes=2, every=32)
    train_agent(run, 48, out, validation=validation)
    train_agent(run, 48, out, validation=validation)  # which changes nothing

    def entries():
        return [entry["steps"] for entry in json.loads((out / EVALUATIONS).read_text())["evaluations"]]

    assert entries() == [32, 48]
    (checkpoints(out)[-1] / "policy.json").unlink()  # as if it had been killed before
    train_agent(run, 16, tmp_path / "short", validation=validation)
    os.replace(tmp_path / "short" / "step-00000016", out / "step-00000016")
    train_agent(run, 32, out, validation=validation)
    assert entries() == [32]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"task": "constant"}, "task 'explore', not 'constant'"),
        ({"algorithm": "a2c"}, "algorithm 'ppo', not 'a2c'"),
        ({"seed": 3}, "seed 0, not 3"),
        ({"envs": 4}, "envs 2, not 4"),
        ({"frame_stack": 2}, "frame_stack 1, not 2"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(run, tmp_path, change, named):
    train_agent(run, 16, tmp_path)
    with pytest.raises(ValueError, match=f"was begun with {named}; give it again, or another folder"):
        train_agent(replace(run, **change), 16, tmp_path)


def test_a_folder_with_something_else_is_left_alone(run, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(ValueError, match="is there already and holds something else"):
        train_agent(run, 16, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_damaged_checkpoint_is_named(run, tmp_path):
    folder = train_agent(run, 16, tmp_path)
    (folder / "policy.zip").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="policy.zip is no policy of ppo .*; delete it or train it again"):
        train_agent(run, 32, tmp_path)
    with pytest.raises(ValueError, match="policy.zip is no policy of ppo"):
        load_policy(str(folder), num_envs=2, seed=0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"task": "sing"}, "the task 'sing' is not known"),
        ({"algorithm": "magic"}, "the algorithm is 'magic'; choose one of ppo, a2c"),
        ({"algorithm": "dqn", "action_mode": "box"}, "dqn does not take actions of Box"),
        ({"world": "nowhere"}, "there is no world 'nowhere'"),
        ({"starts": "none.safetensors"}, "there is no file 'none.safetensors'"),
    ],
)
def test_mistakes_leave_nothing_behind(true_run, tmp_path, change, named):
    with pytest.raises((ValueError, OSError), match=named):
        train_agent(replace(true_run, **change), 16, tmp_path / "agent")
    assert not (tmp_path / "agent").exists()


@pytest.mark.parametrize("name", ["envs", "episode_steps", "frame_stack"])
def test_numbers_below_one_are_refused(run, name):
    with pytest.raises(ValueError, match=f"{name} is 0; give at least 1"):
        replace(run, **{name: 0})


def test_wrong_numbers_of_keeping_are_refused(run, tmp_path):
    with pytest.raises(ValueError, match="steps is 0; give at least 1"):
        train_agent(run, 0, tmp_path)
    with pytest.raises(ValueError, match="every 0 steps"):
        Keeping(every=0)
    with pytest.raises(ValueError, match="give at least 1 of each"):
        Validation("starts.safetensors", episodes=0)


def test_stacked_pictures_are_shown_as_while_training(run, tmp_path, picture):
    """The newest last, black before the episode's first."""
    out = train_agent(replace(run, frame_stack=3), 16, tmp_path)
    policy = load_policy(str(out), num_envs=2, seed=0)
    frames = [np.stack([picture(centre)] * 2) for centre in (10, 20, 30)]
    policy.reset(np.ones(2, dtype=bool))
    for frame in frames:
        policy.act(frame)
    assert np.array_equal(policy.pictures, np.concatenate(frames, axis=-1))
    policy.reset(np.array([True, False]))
    policy.act(frames[0])
    assert not policy.pictures[0, ..., :6].any() and np.array_equal(policy.pictures[1, ..., :3], frames[1][1])


def test_a_recurrent_policy_forgets_at_the_beginning_of_an_episode(run, tmp_path, picture):
    pytest.importorskip("sb3_contrib")
    out = train_agent(replace(run, algorithm="recurrent-ppo"), 16, tmp_path)
    policy = load_policy(str(out), num_envs=2, seed=0)
    frame = np.stack([picture()] * 2)
    policy.reset(np.ones(2, dtype=bool))
    policy.act(frame)
    fresh = policy.state[0][0].clone()
    policy.act(frame)
    policy.reset(np.array([True, False]))
    policy.act(frame)
    assert torch.allclose(policy.state[0][0, 0], fresh[0]) and not torch.allclose(policy.state[0][0, 1], fresh[1])


def test_a_card_that_does_not_fit_its_model_is_refused(run, tmp_path):
    folder = train_agent(run, 16, tmp_path)
    card = read_card(folder)
    replace(card, frame_stack=2).save(folder)
    with pytest.raises(ValueError, match=r"takes pictures \[3, 64, 64\] and its card tells of \[64, 64, 6\]"):
        load_policy(str(folder), num_envs=2, seed=0)
    replace(card, algorithm="magic").save(folder)
    with pytest.raises(ValueError, match="tells of 'magic'"):
        load_policy(str(folder), num_envs=2, seed=0)
    (folder / "policy.json").write_text("[")
    with pytest.raises(ValueError, match="is no policy's card"):
        load_policy(str(folder), num_envs=2, seed=0)
    (folder / "policy.json").unlink()
    with pytest.raises(ValueError, match="holds no policy.json"):
        load_policy(str(folder / "policy.zip"), num_envs=2, seed=0)


def test_minibatches_fit_the_rollout(corridor):
    env = StableBaselinesVecEnv(corridor(3, mode=AutoresetMode.SAME_STEP))
    assert make_algorithm("ppo", env, 0).batch_size == 8  # of 8 steps in 3 slots
