"""A trajectory is refused with file and frame when it is none, and is right between its frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from world_model.data.public.poses import PoseError, Trajectory, from_quaternions, inverse, square


@pytest.fixture
def cameras(walk, stroll):
    return walk(stroll(12))


def test_a_nan_is_named_with_file_and_frame(cameras):
    cameras[7, 1, 3] = np.nan
    with pytest.raises(PoseError, match=r"^walk\.npz, frame 21: the pose holds a value that is not a finite number$"):
        Trajectory(np.arange(12.0) * 3, cameras, "walk.npz")


def test_a_gap_is_named_with_file_and_frame(cameras):
    frames = np.delete(np.arange(13.0), 5)
    with pytest.raises(PoseError, match=r"^walk\.npz, frame 4: poses are missing from here up to frame 6"):
        Trajectory(frames, cameras, "walk.npz")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f, c: (f[:3], c), "3 frame numbers for 12 poses"),
        (lambda f, c: (f[:1], c[:1]), "at least 2"),
        (lambda f, c: (f, c[:, :3]), r"shape \[12, 3, 4\]"),
        (lambda f, c: (f, c @ np.diag([1.1, 1.1, 1.1, 1])), "frame 0: the upper left 3x3 part"),
        (lambda f, c: (f, np.swapaxes(c, 1, 2)), "frame 1: the last row of the pose is not 0 0 0 1; .*transposed"),
        (lambda f, c: (f, inverse(np.swapaxes(c, 1, 2))), "the last row of the pose"),
        (lambda f, c: (f[:, None], c), r"frame numbers have the shape \[12, 1\]"),
        (lambda f, c: (f[0], c), r"frame numbers have the shape \[\]"),
        (lambda f, c: (f[::-1].copy(), c), "frame 10: its number is not above"),
        (lambda f, c: (np.where(f == 2, np.inf, f), c), "frame number of pose 2"),
    ],
)
def test_what_is_no_trajectory_is_refused(cameras, spoil, message):
    with pytest.raises(PoseError, match=message):
        Trajectory(*spoil(np.arange(12.0), cameras), "walk.npz")


def test_poses_must_reach_over_the_whole_video(cameras):
    trajectory = Trajectory(np.arange(12.0), cameras, "walk.npz")
    trajectory.reach(13)
    with pytest.raises(PoseError, match="frame 11: the poses end here, but the video goes on to frame 40"):
        trajectory.reach(40)
    with pytest.raises(PoseError, match="first pose is for frame 9"):
        Trajectory(np.arange(12.0) + 9, cameras, "walk.npz").reach(20)
    trajectory.reach(8)
    with pytest.raises(PoseError, match="frame 11: the poses go on to here, but the video ends at frame 5"):
        trajectory.reach(5)


def test_poses_between_frames(walk, stroll):
    fine = walk(stroll(1)[[0] * 9] + np.array([0, 4, 1, 0, 0, 0]) * np.arange(9)[:, None].clip(max=1))
    sparse = Trajectory(np.arange(0.0, 9, 2), fine[::2], "walk.npz")
    turned = sparse.at(np.arange(9.0))
    assert np.allclose(turned[:, :3, :3], fine[:, :3, :3])
    assert np.allclose(turned[::2], fine[::2])
    assert np.linalg.norm(turned[:, :3, 3] - fine[:, :3, 3], axis=1).max() < 0.05  # a chord instead of the arc


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4).filter(lambda q: np.linalg.norm(q) > 0.1))
def test_quaternions_and_inverses(quaternion):
    matrices = from_quaternions(np.array([[1.0, 2, 3, *quaternion]]))
    assert np.allclose(matrices @ inverse(matrices), np.eye(4))
    axis, angle = np.array(quaternion[:3]), quaternion[3]
    assert np.allclose(matrices[0, :3, :3] @ axis, axis)
    cosine = 2 * angle**2 / np.dot(quaternion, quaternion) - 1
    assert np.isclose((np.trace(matrices[0, :3, :3]) - 1) / 2, cosine)
    assert np.array_equal(square(matrices[:, :3]), matrices)


def test_a_zero_quaternion_is_a_missing_pose():
    rows = np.zeros((3, 7))
    rows[:, 6] = [1, 0, 1]
    with pytest.raises(PoseError, match="frame 1: the pose holds"):
        Trajectory(np.arange(3.0), from_quaternions(rows), "poses.npy")


def test_a_number_in_place_of_poses_is_refused():
    one = square(np.float64(1))
    with pytest.raises(PoseError, match="poses have the shape \\[1\\]"):
        Trajectory(np.arange(len(one)), one, "walk.npz")
