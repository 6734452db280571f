"""Each limit refuses what it is for, with its reason, and lets a good clip pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from world_model.data.public.actions import action_rows, ground_poses
from world_model.data.public.quality import QualityLimits, faults, motion_measures, picture_measures

LIMITS = QualityLimits()


@pytest.fixture
def cameras(walk, stroll):
    rows = stroll(60) * [1, 0.3, 1, 1, 1, 1]
    return walk(rows)


def judged(cameras, pictures):
    poses = ground_poses(cameras)
    return faults(motion_measures(poses, action_rows(poses), LIMITS) | picture_measures(pictures), LIMITS)


def pictures(low=20, high=235, seed=0):
    return np.random.default_rng(seed).integers(low, high, (60, 16, 16, 3)).astype(np.uint8)


def test_a_good_clip_has_no_faults(cameras):
    assert judged(cameras, pictures()) == []


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda c, n: c[:, :3, 3].__iadd__(n[:, :3]), "positions shake"),
        (lambda c, n: c[30:, :3, 3].__iadd__([20, 0, 0]), "position leaps"),
        (lambda c, n: c.__setitem__(slice(None), c[0]), "hardly anything is done"),
    ],
)
def test_motion(cameras, spoil, reason):
    spoil(cameras, np.random.default_rng(0).normal(size=(60, 4)))
    assert any(reason in fault for fault in judged(cameras, pictures()))


def test_a_shaking_camera(walk, stroll):
    rows = stroll(60)
    rows[:, 1] = np.random.default_rng(0).normal(size=60) * 8
    assert any("camera shakes" in fault for fault in judged(walk(rows), pictures()))


@pytest.mark.parametrize(
    ("frames", "reasons"),
    [
        (pictures()[:1].repeat(60, 0), ["nearly still"]),
        (pictures(5, 30), ["too dark"]),
        (pictures(228, 250), ["too bright"]),
        (np.where(pictures() > 120, 255, 0).astype(np.uint8)[..., :1].repeat(3, -1), ["black or white"]),
        (pictures(125, 131), ["no contrast"]),
    ],
)
def test_pictures(cameras, frames, reasons):
    found = judged(cameras, frames)
    assert all(any(reason in fault for fault in found) for reason in reasons), found


def test_a_measure_that_is_not_a_number_is_a_fault():
    poses = np.zeros((5, 5))
    measures = motion_measures(poses, action_rows(poses), LIMITS) | picture_measures(pictures())
    assert faults(measures, replace(LIMITS, activity=0)) == []
    assert len(faults({**measures, "luma": float("nan")}, replace(LIMITS, activity=0))) == 2
