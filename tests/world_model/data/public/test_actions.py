"""Poses made from known action rows give these rows back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.controls import LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW
from world_model.data.public.actions import ActionThresholds, action_rows, ground_poses, up_direction

ROW = st.tuples(st.floats(-4, 4), st.floats(-80, 80), st.integers(-1, 1), st.integers(-1, 1))


def rows_of(drawn) -> np.ndarray:
    rows = np.zeros((len(drawn) + 1, 6))
    rows[1:, :4] = drawn
    rows[:, PERSPECTIVE] = 1
    return rows


def some_world(seed: int) -> np.ndarray:
    """A random rigid motion of everything, so that nothing depends on the axes of the source."""
    rng = np.random.default_rng(seed)
    world = np.eye(4)
    world[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    world[:3, :3] *= np.sign(np.linalg.det(world[:3, :3]))
    world[:3, 3] = rng.normal(size=3) * 10
    return world


@settings(max_examples=60, deadline=None)
@given(drawn=st.lists(ROW, min_size=1, max_size=16), seed=st.integers(0, 99), scale=st.floats(0.05, 50))
def test_known_rows_come_back(walk, drawn, seed, scale):
    rows, world = rows_of(drawn), some_world(seed)
    cameras = walk(rows, world=world, scale=scale)
    found = action_rows(ground_poses(cameras, up=-world[:3, 1]))
    assert np.allclose(found, rows, atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(yaw=st.lists(st.floats(-12, 12), min_size=30, max_size=30), seed=st.integers(0, 99))
def test_the_vertical_is_found_from_level_cameras_that_look_down(walk, yaw, seed):
    rows = rows_of([(0, y, 1, 0) for y in [*yaw, *[15] * 6]])
    rows[0, PITCH] = -20
    world = some_world(seed)
    cameras = walk(rows, world=world)
    assert -world[:3, 1] @ up_direction(cameras) > np.cos(np.radians(0.5))
    found = action_rows(ground_poses(cameras))
    assert np.allclose(found[1:, [PITCH, YAW]], rows[1:, [PITCH, YAW]], atol=0.2)


def test_ground_poses_are_a_map_with_headings_to_the_left(walk):
    poses = ground_poses(walk(rows_of([(0, 90, 0, 0), (0, 0, 1, 0), (10, 0, 0, 0)])))
    assert np.allclose(poses[-1], [0, -1, 0, -90, 10], atol=1e-2)


def test_a_turn_over_the_back_is_a_small_one(walk):
    rows = rows_of([(0, 170, 0, 0), (0, 20, 0, 0), (0, -20, 0, 0)])
    assert np.allclose(action_rows(ground_poses(walk(rows)))[:, YAW], rows[:, YAW], atol=1e-4)


def test_a_hand_that_shakes_is_not_a_walk(walk, stroll):
    rows = stroll(60)
    cameras = walk(rows)
    cameras[:, :3, 3] += np.random.default_rng(0).normal(size=(60, 3)) * 0.05
    found = action_rows(ground_poses(cameras))
    assert np.array_equal(found[:, LONGITUDINAL], rows[:, LONGITUDINAL]) and not found[:, LATERAL].any()


@pytest.mark.parametrize(("sector", "expected"), [(22.5, (1, 1)), (40.0, (1, 0))])
def test_thresholds_decide(walk, sector, expected):
    rows = rows_of([(0, 0, 1, 0)] * 5)
    rows[1:, LATERAL] = 0.6  # 31 degrees off the way ahead
    found = action_rows(ground_poses(walk(rows)), ActionThresholds(sector=sector))
    assert (found[1:, [LONGITUDINAL, LATERAL]] == expected).all()
    assert not action_rows(ground_poses(walk(rows)), ActionThresholds(still=2.0))[:, [LONGITUDINAL, LATERAL]].any()


def test_a_quantile_is_a_share():
    with pytest.raises(ValueError, match="usual_quantile is 5; give a share of the steps, 0 to 1"):
        ActionThresholds(usual_quantile=5)
