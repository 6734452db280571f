"""A clone does what the players of its recordings did."""

from __future__ import annotations

import numpy as np
import pytest

from agents import cloning
from agents.cloning import clone
from agents.policies import load_policy
from agents.policies.card import read_card
from agents.policies.simple import MENU
from world_model.controls import FrameAction, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore, ShardWriter, write_manifest

TASK = "walk to the red ball"


def recordings(folder, clips):
    writer = ShardWriter(folder / "shard-00000.safetensors")
    for one in clips:
        writer.add(one)
    write_manifest(folder, [writer.close()])
    return ClipStore(folder)


def turning(picture, right: bool, length: int = 8, fulfilled: int | None = None) -> Clip:
    """A ball on one side, and a player who turns there, until the task is fulfilled; then he jumps."""
    frames = np.stack([picture(48 if right else 16)] * length)
    rows = [FrameAction(yaw=15 if right else -15) if t <= (fulfilled or length) else FrameAction(jump=1)
            for t in range(length)]  # fmt: skip
    rewards = np.zeros(length, dtype=np.float32)
    if fulfilled is not None:
        rewards[fulfilled] = 1
    return Clip(
        frames, np.stack([row.row() for row in rows]), ((0, StructuredCaption("a room")),),
        rewards={TASK: rewards}, terminated={TASK: rewards > 0},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(cloning, "CLIPS", 4)
    monkeypatch.setattr(cloning, "FRAMES", 4)


@pytest.fixture
def store(tmp_path, picture):
    return recordings(tmp_path, [turning(picture, right) for right in (False, True)])


def choices(folder, picture):
    policy = load_policy(str(folder), num_envs=2, seed=0)
    policy.reset(np.ones(2, dtype=bool))
    return [MENU[action] for action in policy.act(np.stack([picture(16), picture(48)]))]


def test_a_clone_chooses_what_the_players_chose(store, tmp_path, picture):
    losses = []
    folder = clone(store, tmp_path / "clone", steps=120, watch=lambda step, loss: losses.append(loss))
    assert choices(folder, picture) == choices(folder / "policy.safetensors", picture) == ["turn left", "turn right"]
    assert losses[-1] < losses[0] / 2 and len(losses) == 120
    card = read_card(folder)
    assert (card.algorithm, card.place, card.steps, card.frame_size) == ("cloning", "recordings", 120, (64, 64))


def test_with_a_task_it_learns_from_clips_that_fulfil_it_up_to_then(tmp_path, picture):
    store = recordings(tmp_path, [turning(picture, True, fulfilled=3), turning(picture, False)])
    folder = clone(store, tmp_path / "clone", task=TASK, steps=20)
    assert choices(folder, picture)[1] == "turn right" and read_card(folder).task == TASK
    left = clone(recordings(tmp_path, [turning(picture, False, fulfilled=3)]), tmp_path / "other", task=TASK, steps=20)
    assert choices(left, picture) == ["turn left", "turn left"]  # nobody jumped before that


def test_the_seed_decides(store, tmp_path):
    one, twin, other = (
        (clone(store, tmp_path / name, steps=2, seed=seed) / "policy.safetensors").read_bytes()
        for name, seed in (("one", 1), ("twin", 1), ("other", 2))
    )
    assert one == twin != other


def test_what_holds_nothing_to_learn_is_refused(store, tmp_path, picture):
    with pytest.raises(ValueError, match="holds no clip that fulfils 'walk to the red ball'; record more"):
        clone(store, tmp_path / "clone", task=TASK)
    with pytest.raises(ValueError, match="knows no task 'sing'; it knows walk to the red ball"):
        clone(store, tmp_path / "clone", task="sing")
    with pytest.raises(ValueError, match="steps is 0"):
        clone(store, tmp_path / "clone", steps=0)
    with pytest.raises(ValueError, match="holds no clip with two frames"):
        clone(recordings(tmp_path, [turning(picture, True, length=1)]), tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


def test_a_damaged_clone_is_refused(store, tmp_path):
    folder = clone(store, tmp_path / "clone", steps=1)
    (folder / "policy.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match="is no cloned policy"):
        load_policy(str(folder), num_envs=2, seed=0)
    (folder / "policy.safetensors").unlink()
    with pytest.raises(ValueError, match="there is no file .*; clone the policy again"):
        load_policy(str(folder), num_envs=2, seed=0)


def test_pictures_of_another_size_are_refused(store, tmp_path):
    policy = load_policy(str(clone(store, tmp_path / "clone", steps=1)), num_envs=2, seed=0)
    with pytest.raises(ValueError, match=r"was shown uint8 \[2, 32, 32, 3\]; it takes uint8 \[2, 64, 64, 3\]"):
        policy.act(np.zeros((2, 32, 32, 3), np.uint8))
