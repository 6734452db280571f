"""``wp2 train-agent`` and ``wp2 clone``: what they print and write, and what they refuse."""

from __future__ import annotations

import os
import signal
import sys

import imageio.v2 as imageio
import numpy as np
import pytest

from agents import train
from agents.policies import checkpoints
from world_model.controls import FrameAction, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ShardWriter, write_manifest


@pytest.fixture
def learn(wp2, folder, tmp_path):
    """Runs ``wp2 train-agent`` in the tiny world."""
    few = ("--task", "explore", "--envs", 2, "--episode-steps", 4, "--world", folder)
    return lambda *words: wp2("train-agent", *few, "--out", tmp_path / "agent", *words)


def test_an_agent_is_trained_continued_filmed_and_evaluated(wp2, learn, folder, tmp_path):
    starts = folder / "starts.safetensors"
    watched = ("--eval-starts", starts, "--eval-episodes", 2)
    answer = learn("--algo", "a2c", "--steps", 16, *watched)
    assert answer.code == 0 and "step-00000016: a2c after 16 steps of 'explore'" in answer.out
    film = tmp_path / "agent.gif"
    answer = learn("--algo", "a2c", "--steps", 32, *watched, "--video", film)
    assert "2 episodes in the world" in answer.out and len(imageio.mimread(film)) >= 4
    assert len(checkpoints(tmp_path / "agent")) == 2
    few = ("--task", "explore", "--world", folder, "--steps", 4)
    assert "2 episodes of up to 4 steps" in wp2("evaluate", tmp_path / "agent", *few).out
    assert "was begun with algorithm 'a2c', not 'ppo'" in learn("--steps", 32).error


def test_an_interrupt_says_that_the_same_command_goes_on(learn, monkeypatch):
    made = train.make_env

    def interrupting(*arguments, **more):
        env = made(*arguments, **more)
        step = env.step
        env.step = lambda actions: (os.kill(os.getpid(), signal.SIGINT), step(actions))[1]
        return env

    monkeypatch.setattr(train, "make_env", interrupting)
    answer = learn("--algo", "a2c", "--steps", 16)
    assert answer.code == 130 and "interrupted after 0 steps; the same command goes on from here" in answer.err
    monkeypatch.setattr(train, "make_env", made)
    assert learn("--algo", "a2c", "--steps", 16).code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--in", "game"], "the true game needs --starts"),
        (["--task", "sing"], "the task 'sing' is not known"),
        (["--world", "nowhere"], "there is no world 'nowhere'"),
        (["--starts", "none.safetensors"], "there is no file 'none.safetensors'"),
        (["--eval-starts", "none.safetensors"], "there is no file 'none.safetensors'"),
        (["--eval-starts", "STARTS", "--eval-episodes", 3], "start_index"),
        (["--algo", "dqn", "--action-mode", "box"], "dqn does not take actions of Box"),
        (["--video", "film.txt"], "is no video file"),
    ],
)
def test_mistakes_are_answered_with_one_sentence_and_leave_nothing(learn, folder, tmp_path, words, sentence):
    words = [folder / "starts.safetensors" if word == "STARTS" else word for word in words]
    assert sentence in learn("--steps", 16, *words).error
    assert not (tmp_path / "agent").exists()


def test_a_missing_package_is_named_with_its_extra(learn, monkeypatch):
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    error = learn("--steps", 16, "--algo", "recurrent-ppo").error
    assert 'pip install "worldplay2-gym[agents]"' in error and "sb3_contrib" in error


@pytest.fixture
def data(tmp_path):
    """A recording of two frames."""
    rows = np.stack([FrameAction().row(), FrameAction(yaw=15).row()])
    frames = np.zeros((2, 64, 64, 3), dtype=np.uint8)
    writer = ShardWriter(tmp_path / "shard-00000.safetensors")
    writer.add(Clip(frames, rows, ((0, StructuredCaption("a room")),)))
    write_manifest(tmp_path, [writer.close()])
    return tmp_path


def test_a_clone_is_made_and_evaluated(wp2, data, folder, tmp_path):
    answer = wp2("clone", "--data", data, "--out", tmp_path / "clone", "--steps", 2)
    assert answer.code == 0 and "imitates 1 recordings" in answer.out
    few = ("--task", "explore", "--world", folder, "--steps", 2)
    assert "2 episodes" in wp2("evaluate", tmp_path / "clone", *few).out
    assert wp2("clone", "--data", data, "--out", tmp_path / "clone", "--steps", 1).code == 0


def test_cloning_says_what_is_wrong(wp2, data, tmp_path):
    assert "does not exist" in wp2("clone", "--data", tmp_path / "none", "--out", tmp_path / "clone").error
    assert "is there already and is no cloned policy" in wp2("clone", "--data", data, "--out", data).error
    assert "knows no task 'sing'" in wp2("clone", "--data", data, "--out", tmp_path / "c", "--task", "sing").error
