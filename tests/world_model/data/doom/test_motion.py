"""The kinematics of an action row; no engine needed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from world_model.controls import FrameAction
from world_model.data.doom.motion import PITCH_LIMIT, TURN_UNIT, TURNING_TICS, inverse, path, quantise

rows = st.builds(
    FrameAction,
    pitch=st.floats(-40, 40),
    yaw=st.floats(-180, 180),
    longitudinal=st.integers(-1, 1),
    lateral=st.integers(-1, 1),
)


@given(rows, st.floats(0, 360))
def test_a_row_and_its_inverse_end_where_they_began(action, heading):
    _, row = quantise(action.row(), 0)
    there = path(np.array([500.0, 500, 0, heading, 0]), row)[-1]
    back = path(np.array([*there, 0, heading - row[1], 0]), inverse(row))[-1]
    np.testing.assert_allclose(back, (500, 500), atol=1e-4)


@given(rows, st.floats(-PITCH_LIMIT, PITCH_LIMIT))
def test_applied_angles_are_what_the_engine_can_turn(action, elevation):
    turn, row = quantise(action.row(), elevation)
    step = TURNING_TICS * TURN_UNIT
    np.testing.assert_allclose(row[:2], (turn.up * step, turn.right * step), rtol=1e-6)
    assert abs(row[1] - action.yaw) <= step / 2 + 1e-5
    assert abs(elevation + row[0]) <= PITCH_LIMIT + step
    mirrored, _ = quantise(-action.row(), -elevation)
    assert mirrored == (-turn.right, -turn.up)


def test_forward_follows_the_heading_and_right_is_clockwise():
    pose = np.array([0.0, 0, 0, 90, 0])
    np.testing.assert_allclose(path(pose, FrameAction(longitudinal=1).row())[-1], (0, 24), atol=1e-6)
    np.testing.assert_allclose(path(pose, FrameAction(lateral=1).row())[-1], (24, 0), atol=1e-6)
    assert path(pose, FrameAction(longitudinal=1, yaw=30).row())[-1][0] > 1
