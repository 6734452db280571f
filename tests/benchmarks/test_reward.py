"""The benchmark of learned rewards: perfect and blind heads get what they deserve, and the command runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from benchmarks import reward
from benchmarks.reward import Told, intervals, judged_kinds, parse
from world_model.checkpoint import save_world
from world_model.config import TINY, RewardConfig
from world_model.controls import StructuredCaption
from world_model.data.clips import Clip
from world_model.reward import REWARD_FILE, RewardHeads, codec_digest, save_heads
from world_model.world import World

RUNS, STEPS = 12, reward.HORIZON + 1
TASKS = ("walk", "dance")


def truth():
    """Every second run is rewarded once, at a step of its own, and counts until then."""
    rewards = np.zeros((RUNS, STEPS), np.float32)
    counted = np.ones((RUNS, STEPS), bool)
    counted[:, 0] = False
    for run in range(0, RUNS, 2):
        rewards[run, 2 + run] = 1
        counted[run, 3 + run :] = False
    return rewards, counted


def test_heads_that_know_the_truth_are_perfect_and_a_constant_is_the_floor():
    rewards, counted = truth()
    perfect = Told(rewards.astype(float), rewards, counted, 0.5).measures()
    assert [perfect[name] for name in reward.MEASURES] == pytest.approx([1, 1, 1, 1, 0])
    constant = Told(np.full(rewards.shape, rewards[counted].mean()), rewards, counted, 0.5).measures()
    assert constant["auroc"] == 0.5 and constant["recall"] == 0 and constant["calibration error"] < 0.05
    assert np.isnan(constant["precision"]) and np.isnan(constant["correlation"])


def test_a_band_looks_at_its_steps_alone():
    rewards, counted = truth()
    said = Told(rewards.astype(float), rewards, counted, 0.5)
    assert (said.within(1, 4).measures()["recall"], said.within(13, 24).measures()["recall"]) == (
        1,
        pytest.approx(np.nan, nan_ok=True),
    )


def test_intervals_are_over_levels_and_leave_out_what_cannot_be_measured():
    rewards, counted = truth()
    found = intervals(Told(rewards.astype(float), rewards, counted, 0.5), [run // 4 for run in range(RUNS)], seed=0)
    assert (found["recall"].low, found["recall"].mean, found["recall"].high) == (1, 1, 1)
    nothing = intervals(Told(rewards, 0 * rewards, counted, 0.5), list(range(RUNS)), seed=0)
    assert np.isnan(nothing["recall"].mean) and np.isnan(nothing["recall"].low)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tiny world on disk with heads whose members disagree."""
    folder, world = tmp_path_factory.mktemp("rewarded"), World.random("tiny")
    save_world(world, folder)
    heads = RewardHeads(RewardConfig(TASKS, TINY.latent_shape, codec_digest(world.codec), window=2))
    for member in heads.members:
        torch.nn.init.normal_(member.out.weight, generator=torch.Generator().manual_seed(1))
    save_heads(heads, folder / REWARD_FILE)
    return folder


def clip(seed: int) -> Clip:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (STEPS + 3, 32, 32, 3), dtype=np.uint8)
    rewards = {task: np.eye(1, len(frames), int(rng.integers(1, 20)), dtype=np.float32)[0] for task in TASKS}
    actions = np.zeros((len(frames), 6), np.float32)
    ends = {task: column > 0 for task, column in rewards.items()}
    captions = ((0, StructuredCaption("a hall")),)
    return Clip(frames, actions, captions, rewards=rewards, terminated=ends, meta={"level_seed": seed // 2})


def test_the_floor_is_what_is_said_of_another_clip(world):
    heads = reward.load_heads(reward.load_world(world), None)
    runs = reward.true_runs(reward.load_world(world), [reward_case(seed) for seed in range(4)], TASKS)
    kinds = judged_kinds(heads, runs, runs)
    assert list(kinds) == ["true frames (ceiling)", "generated", "another clip (floor)"]
    own, other = kinds["generated"]["walk"], kinds["another clip (floor)"]["walk"]
    assert np.array_equal(own.chances, np.roll(other.chances, 2, axis=0)) and own.chances.std() > 0
    assert np.array_equal(own.rewards, other.rewards)


def reward_case(seed: int):
    from world_model.training.reward_data import Case

    return Case(clip(seed), 0, reward.HORIZON)


def test_the_command_runs_and_writes_its_results(world, tmp_path, write_store, monkeypatch, capsys):
    monkeypatch.setattr(reward, "RESAMPLES", 5)
    data = write_store(tmp_path / "data", map(clip, range(4)))
    arguments = ["--world", str(world), "--data", str(data), "--starts", "3", "--json", str(tmp_path / "r.json")]
    reward.main(parse(arguments))
    out = capsys.readouterr().out
    assert "3 clips of" in out and "another clip (floor)" in out and "17-24" in out
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert results["all steps"]["generated / walk"]["auroc"]["count"] == 3


def test_a_world_without_heads_is_told_to_train_some():
    with pytest.raises(ValueError, match="no reward heads; train some with `wp2 train reward`"):
        reward.load_heads(World.random("tiny"), None)
