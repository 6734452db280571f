"""Where the time of training goes is counted once, and both arms learn the same number of steps."""

import json
import time
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from agents import algorithms
from agents.sb3 import StableBaselinesVecEnv
from benchmarks import agent_speed, report
from benchmarks.agent_speed import BATCHED, CEILING, PARTS, SINGLE, Clock, StandingStill
from world_model.checkpoint import save_world
from world_model.config import TINY, VideoConfig
from world_model.controls import StructuredCaption
from world_model.world import World
from wp2env.starts import BANK_FILE, StartBank


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world of 64x64 pixels, since the agent's network takes nothing smaller."""
    small = replace(TINY, video=VideoConfig(height=64, width=64), transformer=replace(TINY.transformer, patch=2))
    folder = tmp_path_factory.mktemp("worlds") / "tiny64"
    save_world(World.random(small, seed=0), folder)
    pictures = np.zeros((1, 1, 64, 64, 3), dtype=np.uint8)
    StartBank(pictures, (StructuredCaption("a hall"),), np.ones(1, np.uint8)).save(folder / BANK_FILE)
    return folder


class Worker:
    def work(self, seconds):
        time.sleep(seconds)
        return "done"

    def fail(self):
        raise ValueError("no")


def test_a_clock_counts_while_it_is_open_and_leaves_the_class_as_it_was():
    work, fail = Worker.work, Worker.fail
    with Clock([(Worker, "work"), (Worker, "fail")]) as clock:
        assert Worker().work(0.02) == "done"
        with pytest.raises(ValueError, match="no"):
            Worker().fail()
    Worker().work(0.02)
    assert 0.02 <= clock.seconds < 0.04 and (Worker.work, Worker.fail) == (work, fail)


def noting_the_dtype(arms, made):
    """``arms`` that also notes what every world calculates in."""

    def noting(slots, settings):
        found = arms(slots, settings)
        environments = [found[BATCHED].env, *(env.unwrapped.batch for env in found[SINGLE].envs)]
        made.extend(env.episodes.handle.dtype for env in environments)
        return found

    return noting


def test_standing_still_shows_the_same_picture_with_the_same_spaces_always(world):
    like = StableBaselinesVecEnv(gymnasium.make_vec("wp2env:WorldPlay2-v0", 2, world=world, action_mode="discrete"))
    env = StandingStill(like)
    first = env.reset()
    pictures, rewards, dones, infos = env.step(np.array([1, 2]))
    assert np.array_equal(first, pictures) and all(picture in env.observation_space for picture in pictures)
    assert env.action_space == like.action_space and not rewards.any() and not dones.any() and infos == [{}, {}]
    like.close()


def test_the_command_prints_its_table_and_writes_its_results(world, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(algorithms.SETTINGS["ppo"], "n_steps", 4)
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    options = ["--world", str(world), "--slots", "2", "--quick", "--json", str(out), "--plot", str(plot)]
    options += ["--dtype", "bfloat16"]
    made = []
    monkeypatch.setattr(agent_speed, "arms", noting_the_dtype(agent_speed.arms, made))
    assert report.run(agent_speed.main, agent_speed.parse(options)) == 0
    printed = capsys.readouterr().out
    assert "2 slots: " in printed and f"| 2     | {SINGLE}" in printed and f"| 2     | {CEILING}" in printed
    assert made == ["bfloat16"] * 3  # one batched environment and two single ones
    found = json.loads(out.read_text())["results"]["slots"]["2"]
    assert found["floor"] == 2 * 35 / 4 and "real time (floor)" in printed
    assert found["shares"][CEILING]["PPO"] == 1 and set(found["of_ceiling"]) == {BATCHED, SINGLE}
    assert found["of_ceiling"][SINGLE]["mean"] < 1
    for name in (BATCHED, SINGLE):
        shares = found["shares"][name]
        assert set(shares) == set(PARTS) and sum(shares.values()) == pytest.approx(1)
        assert all(share > 0 for share in shares.values())
        assert found["speeds"][name]["count"] == 2
    assert plot.is_file()


def test_impossible_numbers_end_in_one_sentence(capsys):
    assert report.run(agent_speed.main, agent_speed.parse(["--slots", "0"])) == 2
    assert capsys.readouterr().err.strip() == "error: --slots is 0; give at least 1"
