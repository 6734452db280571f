"""Starts of tasks: fresh levels, the goal in view in every frame, the same again for the same numbers."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from world_model.controls import FIRST_PERSON, NOTHING, PERSPECTIVE, YAW
from world_model.data.doom import task_starts
from world_model.data.doom.engine import FIELD_OF_VIEW
from world_model.data.doom.levels import random_level
from world_model.data.doom.recipe import LEVEL_SEEDS
from world_model.data.doom.task_names import WALK_TO_BALL
from world_model.data.doom.task_starts import TARGETS, record_task_starts

WALK = WALK_TO_BALL
HALF_VIEW = math.degrees(math.atan(math.tan(math.radians(FIELD_OF_VIEW / 2)) * 3 / 4))  # of the square that is kept


def record(task=WALK, count=4, **arguments):
    return list(record_task_starts(task, count, **{"split": "test", "seed": 1, "size": 16, **arguments}))


def equal(one, other):
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("frames", "actions"))
    return same and (one.caption, one.origin) == (other.caption, other.origin)


@pytest.fixture(scope="module")
def starts():
    return record()


def test_each_start_is_in_a_level_of_its_own_in_the_split(starts):
    seeds = [start.origin["level_seed"] for start in starts]
    assert len(set(seeds)) == 4 and all(seed in LEVEL_SEEDS["test"] for seed in seeds)


def test_frames_and_rows_belong_together(starts):
    for start in starts:
        assert start.frames.shape == (4, 16, 16, 3) and start.frames.dtype == np.uint8
        assert start.actions.shape == (4, 6) and start.actions.dtype == np.float32
        assert not start.actions[0, :PERSPECTIVE].any() and (start.actions[:, PERSPECTIVE] == FIRST_PERSON).all()
        assert np.abs(np.diff(start.frames.astype(int), axis=0)).max() > 0
        assert start.caption.character != NOTHING and start.caption.event == NOTHING


@pytest.mark.parametrize("task", [task for task, target in TARGETS.items() if target])
def test_the_goal_is_in_the_picture_of_every_frame(task):
    for start in record(task, 2, frames=9):
        x, y, heading = (start.origin["start"][name] for name in ("x", "y", "heading"))
        headings = heading - np.cumsum(start.actions[:, YAW])

        def off(goal, headings=headings, x=x, y=y):
            return (math.degrees(math.atan2(goal.y - y, goal.x - x)) - headings + 180) % 360 - 180

        goals = random_level(start.origin["level_seed"]).named(TARGETS[task])
        assert any(np.abs(off(goal)).max() < HALF_VIEW for goal in goals)


def test_a_longer_list_begins_with_the_shorter_one_whatever_shares_an_engine(starts, monkeypatch):
    monkeypatch.setattr(task_starts, "LEVELS_PER_GAME", 2)
    assert all(map(equal, record(count=3), starts))


def test_seed_split_and_task_choose_other_places(starts):
    for other in ({"seed": 2}, {"split": "train"}, {"task": "explore"}):
        assert not equal(record(count=1, **other)[0], starts[0])


def test_one_frame_is_enough(starts):
    start = record(count=1, frames=1)[0]
    assert len(start.frames) == 1 and start.origin == starts[0].origin
    np.testing.assert_array_equal(start.frames[0], starts[0].frames[0])


def test_a_place_where_the_task_is_fulfilled_already_is_left_out(starts, monkeypatch):
    def spoilt(self, row, step=task_starts.DoomGame.step):
        done = step(self, row)
        if self.level.seed == starts[0].origin["level_seed"]:
            done.terminated[WALK] = True
        return done

    monkeypatch.setattr(task_starts.DoomGame, "step", spoilt)
    assert all(map(equal, record(count=2), starts[1:3]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "fly"}, "'fly'; starts can be recorded for explore"),
        ({"split": "freedoom"}, "'freedoom'"),
        ({"count": 0}, "count is 0"),
        ({"frames": 0}, "frames 0"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_impossible_wishes_are_refused_at_once(wrong, message):
    wish = {"task": WALK, "count": 1, "split": "test", **wrong}
    with pytest.raises(ValueError, match=message):
        record_task_starts(wish.pop("task"), wish.pop("count"), **wish)


def test_origins_are_plain_data(starts):
    origin = starts[0].origin
    assert origin["start"] == asdict(task_starts.Start(**origin["start"]))
    assert origin["look"] == asdict(task_starts.Look(**origin["look"]))
