"""Policies that see places again, and the mixes of policies a recording is made of."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from world_model.controls import FIRST_PERSON, LONGITUDINAL, THIRD_PERSON
from world_model.data.doom.engine import Look
from world_model.data.doom.game import DoomGame
from world_model.data.doom.levels import centre, random_level
from world_model.data.doom.mixes import MIXES
from world_model.data.doom.motion import HEADING, degrees_between, path, quantise
from world_model.data.doom.recipe import PLAYS, Recipe
from world_model.data.doom.revisits import CIRCLE_ERROR, CIRCLE_RATES, Rounds, Spinner
from world_model.data.doom.starts import choose_look, choose_start
from world_model.data.doom.studio import open_studio
from world_model.data.doom.take import Take

LEVELS = 4


@pytest.fixture(scope="module")
def game():
    game = DoomGame([random_level(seed) for seed in range(LEVELS)], size=64)
    yield game
    game.close()


def begin(game: DoomGame, level: int) -> np.random.Generator:
    rng = np.random.default_rng(level)
    game.reset(level, choose_start(game.levels[level], rng), Look())
    return rng


def apart(pose: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Distance in map units and largest difference of an angle in degrees."""
    return float(np.hypot(*(pose - other)[:2])), float(np.abs(degrees_between((pose - other)[HEADING:])).max())


def share_seen_again(pose: np.ndarray) -> float:
    """The share of frames whose pose was nearly taken at least 12 frames earlier."""
    seen = [any(np.less(apart(pose[t], pose[s]), (8, 6)).all() for s in range(t - 11)) for t in range(len(pose))]
    return float(np.mean(seen))


def test_every_play_is_a_mix_of_whole_shares():
    assert tuple(MIXES) == PLAYS
    assert all(sum(mix.shares.values()) == pytest.approx(1) for mix in MIXES.values())


def test_everything_draws_what_it_drew_before_there_was_a_choice():
    level, drawn = random_level(0), []
    for index in range(40):
        take = Take(SimpleNamespace(levels=[level]), 0, Recipe(7, "train", 64, 64), index)
        rng = np.random.default_rng([7, 0, index, 1])
        choose_start(level, rng), choose_look(rng)
        name = ("Explorer", "ThereAndBack", "TaskWalker", "DepthWalker")[rng.choice(4, p=[0.55, 0.20, 0.15, 0.10])]
        assert type(take.policy).__name__ == name
        if name in ("Explorer", "DepthWalker"):  # the others draw more
            rng.integers(8, 30) if name == "Explorer" else None
            views = np.full(64, FIRST_PERSON if rng.random() < 0.5 else THIRD_PERSON)
            if rng.random() < 0.35 / 0.8:
                for switch in rng.integers(4, 64, size=int(rng.integers(1, 3))):
                    views[switch:] = 1 - views[switch:]
            np.testing.assert_array_equal(take.views, views)
            assert take.event_frame == (int(rng.integers(6, 50)) if rng.random() < 0.5 / 0.93 / 0.8 else None)
        drawn.append(name)
    assert len(set(drawn)) == 4


def test_the_usual_play_goes_without_saying():
    usual, other = Recipe(0, "train", 64, 64), Recipe(0, "train", 64, 64, "mirror")
    assert usual.told() == {"seed": 0, "split": "train", "frames": 64, "size": 64}
    assert other.told() == {**usual.told(), "play": "mirror"}


@pytest.mark.parametrize("frames", [41, 42])
def test_a_mirror_shows_every_frame_again(frames):
    middle = (frames - 1) // 2
    with open_studio(Recipe(0, "test", frames, 64, "mirror"), list(range(6))) as studio:
        clips = [studio.record(index) for index in range(6)]
    for clip in clips:
        for k in range(1, middle + 1):
            distance, angle = apart(clip.pose[middle + k], clip.pose[middle - k])
            assert distance < 0.1 and angle < 0.1
        assert clip.meta["event"] is None and len(set(clip.actions[:, 4])) == 1
        assert not clip.actions[2 * middle + 1 :, [0, 1, 2, 3, 5]].any() and clip.actions[middle, :4].any()
    assert max(apart(clip.pose[0], clip.pose[middle])[0] for clip in clips) > 100


def test_the_rates_of_turns_close_a_circle():
    assert len(CIRCLE_RATES) > 10
    for frames, step in CIRCLE_RATES:
        _, row = quantise(np.array([0, step, 0, 0, 0, 0], np.float32), 0)
        assert abs(frames * float(row[1]) - 360) < CIRCLE_ERROR + 1e-3


@pytest.mark.parametrize("level", range(LEVELS))
def test_a_spinner_turns_on_the_spot_through_whole_circles_and_walks_into_nothing(game, level):
    policy = Spinner(begin(game, level))
    poses, turned, still = [game.pose], 0.0, 0
    for _ in range(256):
        turning = bool(policy.turning) or not policy.walking
        before, step = game.pose, game.step(policy(game))
        np.testing.assert_allclose(step.pose[:2], path(before, step.action)[-1], atol=0.05)
        if turning:
            np.testing.assert_allclose(step.pose[:2], before[:2], atol=0.01)
            turned, still = turned + float(step.action[1]), still + (not step.action[:4].any())
            if not policy.turning:
                assert abs(degrees_between(turned)) < 4 * CIRCLE_ERROR and abs(turned) > 700
                turned = 0.0
        poses.append(step.pose)
    assert share_seen_again(np.stack(poses)) > 0.3
    assert still < 60 and np.ptp(np.stack(poses)[:, :2], axis=0).max() > 24


@pytest.mark.parametrize("level", range(LEVELS))
def test_rounds_meet_every_place_again_and_again(game, level):
    policy, poses = Rounds(begin(game, level)), []
    for _ in range(256):
        poses.append(game.step(policy(game)).pose)
    assert 2 <= len(set(policy.places)) <= 4
    for place in policy.places:
        there = [np.hypot(*(pose[:2] - centre(*place))) < 64 for pose in poses]
        assert np.diff(np.array(there, int)).clip(0).sum() + there[0] >= 2  # arrivals
    assert share_seen_again(np.stack(poses)) > 0.2


def test_rounds_give_up_a_place_that_cannot_be_reached(game, monkeypatch):
    policy = Rounds(begin(game, 0))
    policy(game)
    first = set(policy.places)
    monkeypatch.setattr(policy, "is_stuck", lambda game: True)
    assert policy(game)[LONGITUDINAL] == -1
    monkeypatch.undo()
    game.step(policy(game))
    assert policy.places and set(policy.places) != first


def test_the_revisits_mix_sees_much_again_and_gives_ways_back_neither_events_nor_other_views():
    with open_studio(Recipe(1, "train", 200, 32, "revisits"), list(range(16))) as studio:
        clips = [studio.record(index) for index in range(16)]
    kinds = {clip.meta["policy"] for clip in clips}
    assert kinds <= {"ThereAndBack", "Spinner", "Rounds", "Explorer"} and len(kinds) >= 3
    for clip in clips:
        assert clip.meta["play"] == "revisits"
        if clip.meta["policy"] == "ThereAndBack":
            assert clip.meta["event"] is None and len(set(clip.actions[:, 4])) == 1
    assert any(clip.meta["event"] for clip in clips)
    assert np.mean([share_seen_again(clip.pose) for clip in clips[:6]]) > 0.3
