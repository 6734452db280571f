"""What one action row does to the pose: quantised turns and the exact, inertia-free steps.

A frame is `TICS` engine tics. The engine turns before it moves, so a turn spread evenly over all tics could
not be walked back (the "inverse trap": the way back would see each step from a heading one tic off). Here the
first tic only moves and the other three turn by a third each: the headings of the four steps are
``h, h+d/3, h+2d/3, h+d``, and a row undoes its negated twin exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from world_model.controls import JUMP, LATERAL, LONGITUDINAL, PITCH, YAW
from world_model.data.doom.actors import SPEED

TICS = 4  # per frame: 35 / 4 = 8.75 frames per second
TURNING_TICS = TICS - 1
TURN_UNIT = 360 / 65536  # degrees; the engine's turns are whole multiples of it
PITCH_LIMIT = 28.0  # degrees up and down; the software renderer itself stops at +32
X, Y, Z, HEADING, ELEVATION = range(5)  # columns of a pose


class Turn(NamedTuple):
    """A frame's turn in `TURN_UNIT` steps per turning tic, right and up positive."""

    right: int
    up: int


def quantise(row: np.ndarray, elevation: float) -> tuple[Turn, np.ndarray]:
    """The turn the engine can make for an action row at a camera elevation (degrees), and the row as applied.

    Angles become multiples of ``3 * 360/65536`` degrees; the elevation stays within ``PITCH_LIMIT``.
    """
    step = TURNING_TICS * TURN_UNIT
    pitch = min(max(float(row[PITCH]), -PITCH_LIMIT - elevation), PITCH_LIMIT - elevation)
    turn = Turn(right=round(float(row[YAW]) / step), up=round(pitch / step))
    applied = np.array(row, dtype=np.float32)
    applied[PITCH], applied[YAW] = turn.up * step, turn.right * step
    return turn, applied


def path(pose: np.ndarray, row: np.ndarray) -> list[tuple[float, float]]:
    """The four points (map units) that a quantised row leads through, one per tic, if nothing is in the way."""
    x, y = float(pose[X]), float(pose[Y])
    forward, right = SPEED * float(row[LONGITUDINAL]), SPEED * float(row[LATERAL])
    headings = np.radians(float(pose[HEADING]) - float(row[YAW]) / TURNING_TICS * np.arange(TICS))
    points = []
    for cosine, sine in zip(np.cos(headings).tolist(), np.sin(headings).tolist(), strict=True):
        x += forward * cosine + right * sine
        y += forward * sine - right * cosine
        points.append((x, y))
    return points


def inverse(row: np.ndarray) -> np.ndarray:
    """The row that walks a row back (no jump, same perspective)."""
    back = np.array(row, dtype=np.float32)
    back[[PITCH, YAW, LONGITUDINAL, LATERAL]] *= -1
    back[JUMP] = 0
    return back


def degrees_between(angle: float) -> float:
    """An angle wrapped to [-180, 180)."""
    return (angle + 180) % 360 - 180
