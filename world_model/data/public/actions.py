"""From camera poses to `FrameAction` rows: which keys and which turns would have led from each frame to the next.

Angles are measured against the vertical, which is found from the cameras themselves: a camera that is held level
has a horizontal x axis wherever it looks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from world_model.controls import ACTION_DIM, FIRST_PERSON, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW

LEVEL_PRIOR = 1e-4  # weight of the mean of the cameras' own up axes, which decides when they all look the same way
X, Y, Z, HEADING, ELEVATION = range(5)  # columns of a ground pose, as in `Clip.pose`


@dataclass(frozen=True)
class ActionThresholds:
    """When a change of position is a movement, and which one.

    Poses know no metres, so a step is compared with the steps of its own clip.
    """

    still: float = 1e-4  # length per frame, in the poses' unit, that is never a movement; some sets scale clips to 1
    usual_quantile: float = 0.9  # of the steps above ``still``: the clip's usual step
    moving: float = 0.3  # share of the usual step from which on a step is a movement
    sector: float = 22.5  # degrees off an axis from which on the other axis counts too; 22.5 makes eight equal sectors

    def __post_init__(self) -> None:
        if not 0 <= self.usual_quantile <= 1:
            raise ValueError(f"usual_quantile is {self.usual_quantile}; give a share of the steps, 0 to 1")


def up_direction(cameras: np.ndarray) -> np.ndarray:
    """The unit vector ``[3]`` that points up in the world of the cameras ``[N, 4, 4]``."""
    rights, own = cameras[:, :3, 0], -cameras[:, :3, 1].mean(axis=0)
    own = own / np.linalg.norm(own)
    tilt = rights.T @ rights / len(rights) + LEVEL_PRIOR * (np.eye(3) - np.outer(own, own))
    up = np.linalg.eigh(tilt)[1][:, 0]  # of the smallest eigenvalue: most nearly perpendicular to all x axes
    return up if up @ own >= 0 else -up


def ground_poses(cameras: np.ndarray, up: np.ndarray | None = None) -> np.ndarray:
    """Cameras ``[N, 4, 4]`` as rows ``[N, 5]`` of x, y, z (up), heading and elevation in degrees.

    The origin is the first camera and heading 0 is where it looks; headings grow to the left, as on a map.
    """
    up = up_direction(cameras) if up is None else up / np.linalg.norm(up)
    right = cameras[0, :3, 0] - up * (cameras[0, :3, 0] @ up)
    right = right / np.linalg.norm(right)
    ahead, left = np.cross(up, right), -right
    looks = np.cross(up, cameras[:, :3, 0])  # level, even for a camera that looks straight up
    moved = cameras[:, :3, 3] - cameras[0, :3, 3]
    rows = np.empty((len(cameras), 5))
    rows[:, X], rows[:, Y], rows[:, Z] = moved @ ahead, moved @ left, moved @ up
    rows[:, HEADING] = np.degrees(np.arctan2(looks @ left, looks @ ahead))
    rows[:, ELEVATION] = np.degrees(np.arcsin(np.clip(cameras[:, :3, 2] @ up, -1, 1)))
    return rows


def action_rows(
    poses: np.ndarray, thresholds: ActionThresholds | None = None, perspective: int = FIRST_PERSON
) -> np.ndarray:
    """Ground poses ``[N, 5]`` as action rows, float32 ``[N, 6]``; row ``t`` leads from frame ``t-1`` to ``t``.

    A step is seen from the heading halfway through the frame's turn: the chord of a walk along an arc. Jumps are
    not recognised.
    """
    thresholds = thresholds or ActionThresholds()
    rows = np.zeros((len(poses), ACTION_DIM), np.float32)
    rows[:, PERSPECTIVE] = perspective
    turns = (np.diff(poses[:, HEADING]) + 180) % 360 - 180
    rows[1:, YAW], rows[1:, PITCH] = -turns, np.diff(poses[:, ELEVATION])
    steps = np.diff(poses[:, [X, Y]], axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    heading = np.radians(poses[:-1, HEADING] + turns / 2)
    forward = steps[:, 0] * np.cos(heading) + steps[:, 1] * np.sin(heading)
    right = steps[:, 0] * np.sin(heading) - steps[:, 1] * np.cos(heading)
    moving = lengths > max(thresholds.still, thresholds.moving * usual_step(lengths, thresholds))
    least = np.sin(np.radians(thresholds.sector)) * lengths
    rows[1:, LONGITUDINAL] = np.sign(forward) * (moving & (np.abs(forward) > least))
    rows[1:, LATERAL] = np.sign(right) * (moving & (np.abs(right) > least))
    return rows


def usual_step(lengths: np.ndarray, thresholds: ActionThresholds) -> float:
    """The step length, in the poses' unit per frame, that a clip's steps are compared with; 0 if it stands still."""
    steps = lengths[lengths > thresholds.still]
    return float(np.quantile(steps, thresholds.usual_quantile)) if len(steps) else 0.0
