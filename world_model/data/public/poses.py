"""A camera trajectory that has been looked at: finite, without gaps, made of rotations; and poses between its frames.

Cameras are camera-to-world matrices with OpenCV's axes: x right, y down, z forward. The unit of length is whatever
the source used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

ROTATION_ERROR = 0.02  # largest deviation of RᵀR from the identity; float16 files and rounded text stay below
GAP = 1.5  # times the usual distance between two poses


class PoseError(ValueError):
    """Poses that cannot be used; the message is one sentence with the file, the frame and what is wrong."""

    def __init__(self, source: Path | str, frame: float | None, problem: str):
        place = "" if frame is None else f", frame {frame:g}"
        super().__init__(f"{source}{place}: {problem}")


@dataclass(frozen=True)
class Trajectory:
    """``N`` poses of one video. Raises `PoseError`, with file and frame, for anything that is not a trajectory."""

    frames: np.ndarray  # float64 [N], the video frame of each pose, ascending; may lie between two frames
    cameras: np.ndarray  # float64 [N, 4, 4], camera to world
    source: Path | str  # the file to name in messages

    def __post_init__(self) -> None:
        if self.cameras.ndim != 3 or self.cameras.shape[1:] != (4, 4):
            shape = list(self.cameras.shape)
            raise PoseError(self.source, None, f"poses have the shape {shape}, expected is [frames, 4, 4]")
        if self.frames.ndim != 1:
            raise PoseError(
                self.source, None, f"frame numbers have the shape {list(self.frames.shape)}, expected is [frames]"
            )
        if len(self.frames) != len(self.cameras):
            numbers, poses = len(self.frames), len(self.cameras)
            raise PoseError(self.source, None, f"there are {numbers} frame numbers for {poses} poses")
        if len(self.frames) < 2:
            raise PoseError(self.source, None, f"there are {len(self.frames)} poses, at least 2 are needed")
        if not np.isfinite(self.frames).all():
            place = int(np.flatnonzero(~np.isfinite(self.frames))[0])
            raise PoseError(self.source, None, f"the frame number of pose {place} is not a finite number")
        self._refuse(~np.isfinite(self.cameras).all(axis=(1, 2)), "the pose holds a value that is not a finite number")
        unlike = np.abs(self.cameras[:, 3] - [0, 0, 0, 1]).max(axis=1) > ROTATION_ERROR
        self._refuse(unlike, "the last row of the pose is not 0 0 0 1; is the matrix transposed?")
        rotations = self.cameras[:, :3, :3]
        error = np.abs(np.swapaxes(rotations, 1, 2) @ rotations - np.eye(3)).max(axis=(1, 2))
        wrong = (error > ROTATION_ERROR) | (np.linalg.det(rotations) < 0)
        self._refuse(wrong, "the upper left 3x3 part of the pose is not a rotation")
        steps = np.diff(self.frames)
        self._refuse(np.append(False, steps <= 0), "its number is not above that of the pose before")
        usual = float(np.median(steps))
        far = np.append(steps > GAP * usual, False)
        if far.any():
            place = int(np.flatnonzero(far)[0])
            missing = f"poses are missing from here up to frame {self.frames[place + 1]:g}, usual is every {usual:g}"
            raise PoseError(self.source, float(self.frames[place]), missing)

    def _refuse(self, wrong: np.ndarray, problem: str) -> None:
        if wrong.any():
            raise PoseError(self.source, float(self.frames[np.flatnonzero(wrong)[0]]), problem)

    def reach(self, last_frame: int) -> None:
        """Raise `PoseError` if the poses leave out the beginning or the end of a video, or go on after it: they are of
        another video then, or of another frame rate."""
        slack = max(3.0, GAP * float(np.median(np.diff(self.frames))))  # containers miscount by a frame or two
        if self.frames[0] > slack:
            raise PoseError(self.source, 0, f"the first pose is for frame {self.frames[0]:g} only")
        if self.frames[-1] < last_frame - slack:
            problem = f"the poses end here, but the video goes on to frame {last_frame}"
            raise PoseError(self.source, float(self.frames[-1]), problem)
        if self.frames[-1] > last_frame + slack:
            problem = f"the poses go on to here, but the video ends at frame {last_frame}"
            raise PoseError(self.source, float(self.frames[-1]), problem)

    def at(self, frames: np.ndarray) -> np.ndarray:
        """Cameras ``[M, 4, 4]`` at any frame numbers inside the trajectory, along the shortest turn between poses."""
        before = np.clip(np.searchsorted(self.frames, frames, side="right") - 1, 0, len(self.frames) - 2)
        share = (frames - self.frames[before]) / (self.frames[before + 1] - self.frames[before])
        cameras = np.tile(np.eye(4), (len(frames), 1, 1))
        for m, (k, s) in enumerate(zip(before, np.clip(share, 0, 1), strict=True)):
            cameras[m] = between(self.cameras[k], self.cameras[k + 1], s)
        return cameras


def between(first: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    """The camera a ``share`` of the way from one camera ``[4, 4]`` to another."""
    turn = cv2.Rodrigues(first[:3, :3].T @ second[:3, :3])[0]
    camera = np.eye(4)
    camera[:3, :3] = first[:3, :3] @ cv2.Rodrigues(turn * share)[0]
    camera[:3, 3] = (1 - share) * first[:3, 3] + share * second[:3, 3]
    return camera


def square(matrices: np.ndarray) -> np.ndarray:
    """``[N, 3, 4]`` matrices with their missing last row, float64; ``[N, 4, 4]`` and anything else as it is."""
    matrices = np.atleast_1d(np.asarray(matrices, np.float64))
    if matrices.ndim != 3 or matrices.shape[1:] != (3, 4):
        return matrices
    return np.concatenate([matrices, np.tile([[[0.0, 0.0, 0.0, 1.0]]], (len(matrices), 1, 1))], axis=1)


def inverse(matrices: np.ndarray) -> np.ndarray:
    """World-to-camera matrices ``[N, 4, 4]`` as camera-to-world ones, or the other way round; NaN stays NaN."""
    result = matrices.copy()  # the last row stays what it is, and is looked at later
    turned = np.swapaxes(matrices[:, :3, :3], 1, 2)
    result[:, :3, :3] = turned
    result[:, :3, 3] = -(turned @ matrices[:, :3, 3:])[..., 0]
    return result


def from_quaternions(rows: np.ndarray) -> np.ndarray:
    """Rows ``[N, 7]`` of tx, ty, tz, qx, qy, qz, qw as matrices ``[N, 4, 4]``; a zero quaternion becomes NaN."""
    rows = np.asarray(rows, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y, z, w = (rows[:, 3:] / np.linalg.norm(rows[:, 3:], axis=1, keepdims=True)).T
    matrices = np.tile(np.eye(4), (len(rows), 1, 1))
    matrices[:, 0, :3] = np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], axis=1)
    matrices[:, 1, :3] = np.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], axis=1)
    matrices[:, 2, :3] = np.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], axis=1)
    matrices[:, :3, 3] = rows[:, :3]
    return matrices
