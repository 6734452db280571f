"""A whole story, small: tiny world, true game, a few rollouts; told once, interrupted, gone on with, and refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace

import imageio.v2 as imageio
import pytest
import torch

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
pytest.importorskip("stable_baselines3")

from agents.cli import main
from agents.policies import checkpoints
from agents.story import telling
from agents.story.findings import AFTER, POLICIES, Story
from agents.story.telling import collect, is_told, tell
from world_model.checkpoint import load_world
from world_model.config import RewardConfig
from world_model.reward import REWARD_FILE, RewardHeads, codec_digest, save_heads
from world_model.training.interruption import Interruption
from wp2env.named_tasks import NAMED_TASKS
from wp2env.starts import read_bank

SLOTS = 2
ROLLOUT = 32 * SLOTS  # steps


@pytest.fixture(scope="module")
def judged(folder, tmp_path_factory):
    """The tiny world with reward heads of random weights."""
    path = tmp_path_factory.mktemp("judged") / "tiny"
    shutil.copytree(folder, path)
    world = load_world(path)
    config = RewardConfig(
        tuple(NAMED_TASKS), world.config.latent_shape, window=2, widths=(4, 8, 2), hidden=8,
        codec=codec_digest(world.codec),
    )  # fmt: skip
    save_heads(RewardHeads(config, seed=1), path / REWARD_FILE)
    return path


@pytest.fixture(scope="module", autouse=True)
def small():
    """Few slots, starts and steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telling, "SLOTS", SLOTS)
        patch.setattr(telling, "ATTEMPTS", 12)
        patch.setattr(telling, "MOMENTS", 3)
        patch.setattr(telling, "IMAGINED_STEPS", 3)
        patch.setattr("agents.story.played.EPISODE_STEPS", 4)
        yield


@pytest.fixture(scope="module")
def story(judged):
    return Story(str(judged), steps=2 * ROLLOUT, episodes=2)


@pytest.fixture(scope="module")
def told(story, tmp_path_factory):
    """The folder of a story that a signal interrupted while the agent learned, and that was then gone on with."""
    out = tmp_path_factory.mktemp("told") / "story"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Interruption, "__enter__", interrupted)
        assert tell(story, out) is None
    assert not is_told(out) and len(checkpoints(out / "agent")) == 1
    assert tell(story, out) is not None
    return out


def interrupted(self):
    """As if the signal came before the first step."""
    self.previous, self.asked = {}, True
    return self


def test_everything_that_was_promised_is_there(told, story):
    assert is_told(told)
    for name in ("demo.mp4", "before-after.mp4"):
        assert len(imageio.mimread(told / name, memtest=False)) > 4
    page = (told / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3 and page.endswith("</html>\n")
    report = json.loads((told / "report.json").read_text())
    assert report["settings"] == story.settings() and list(report["policies"]) == list(POLICIES)
    assert set(report["seconds"]) >= {"demo", "starts", "before", "training", "after"}
    assert not [path for path in told.rglob(".*")]


def test_both_places_begin_from_the_same_starts_in_levels_of_their_own(told):
    banks = {split: read_bank(told / "starts" / f"{split}.safetensors") for split in ("train", "validation", "test")}
    assert [len(bank) for bank in banks.values()] == [3, 2, 2]
    levels = [origin["level_seed"] for split in ("validation", "test") for origin in banks[split].origins]
    assert len(set(levels)) == len(levels)


def test_the_agent_learns_from_recorded_moments_in_short_episodes_and_the_recordings_are_gone(told):
    run = json.loads((told / "agent" / "run.json").read_text())
    assert run["episode_steps"] == 3 and not (told / "starts" / "recordings").exists()
    bank = read_bank(told / "starts" / "train.safetensors")
    assert bank.origins is None and bank.frames.shape[1] == telling.MOMENT_FRAMES


def test_the_agent_learned_in_the_world_alone_and_was_tried_out_on_the_way(told, story):
    run = json.loads((told / "agent" / "run.json").read_text())
    assert run["place"] == "world" and run["starts"].endswith("train.safetensors") and run["envs"] == SLOTS
    found = collect(story, told)
    assert found.steps == 2 * ROLLOUT and [steps for steps, _ in found.curve] == [0, ROLLOUT, 2 * ROLLOUT]
    assert not list((told / "episodes").glob("validation-*-world.npz"))  # each would cost as much as a stage


def test_without_time_for_all_steps_training_ends_after_the_first_stage_and_the_rest_is_told(story, tmp_path, capsys):
    hurried = replace(story, minutes=1e-3)
    found = tell(hurried, tmp_path / "story")
    assert is_told(tmp_path / "story") and found.ended_early
    assert found.steps == ROLLOUT and [steps for steps, _ in found.curve] == [0, ROLLOUT]
    assert f"no time is left for more than {ROLLOUT} of {story.steps} steps" in capsys.readouterr().out
    assert found.policies[AFTER]["game"].lengths.size == story.episodes
    page = (tmp_path / "story" / "report.html").read_text()
    assert f"no time for all {story.steps} steps" in page and f"step-{ROLLOUT:08d}" in page


def test_told_again_nothing_is_done_again(told, story, monkeypatch):
    monkeypatch.setattr(telling, "_able", lambda story: 1 / 0)
    before = {path: path.stat().st_mtime_ns for path in told.rglob("*")}
    assert tell(story, told).as_dict()["policies"] == json.loads((told / "report.json").read_text())["policies"]
    assert before == {path: path.stat().st_mtime_ns for path in told.rglob("*")}


def test_a_lost_report_is_written_again_from_what_was_played(told, story, tmp_path, monkeypatch):
    copy = shutil.copytree(told, tmp_path / "copy")
    for name in ("report.html", "before-after.mp4"):
        (copy / name).unlink()
    for name in ("untrained_agent", "train_agent"):
        monkeypatch.setattr(telling, name, lambda *arguments: 1 / 0)
    tell(story, copy)
    assert is_told(copy)


def test_another_story_in_the_same_folder_is_refused(told, story):
    with pytest.raises(ValueError, match="was begun with seed 0, not 1; give it again, or another folder"):
        tell(replace(story, seed=1), told)


def test_a_folder_with_something_else_is_left_alone(story, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="is there already and holds something else"):
        tell(story, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_world_without_rewards_is_refused_before_anything_is_written(folder, tmp_path):
    with pytest.raises(ValueError, match="has no learned reward for the task 'walk to the red ball'"):
        tell(Story(str(folder)), tmp_path / "story")
    assert not list(tmp_path.iterdir())


def test_the_command_says_where_it_all_is_and_what_came_out(told, story, capsys):
    words = ["story", "--out", told, "--world", story.world, "--steps", story.steps, "--episodes", 2, "--threads", 1]
    assert main([str(word) for word in (*words, "--dtype", "float32")]) == 0
    said = capsys.readouterr().out
    assert "this story is told already" in said and "| after training" in said and f"open {told}/report.html" in said
    assert torch.get_num_threads() == 1


def test_an_interrupted_command_says_how_to_go_on(story, tmp_path, capsys, monkeypatch):
    def interrupt(*arguments):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(telling, "tell", lambda story, out: None)
    words = ["story", "--out", str(tmp_path / "s"), "--world", story.world, "--threads", "1"]
    assert main(words) == 130 and "the same command goes on from here" in capsys.readouterr().err
    monkeypatch.setattr(telling, "tell", interrupt)
    assert main(words) == 130 and "interrupted" in capsys.readouterr().err
