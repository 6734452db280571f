"""Which clips are worth training on: measured numbers, and the limits that refuse a clip with a reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from world_model.controls import LATERAL, LONGITUDINAL, PITCH, YAW
from world_model.data.public.actions import ELEVATION, HEADING, X, Z

DARKEST, BRIGHTEST = 4, 251  # luma at and beyond which a pixel has lost its detail
LUMA = np.array([0.299, 0.587, 0.114])  # of RGB, ITU-R BT.601


@dataclass(frozen=True)
class QualityLimits:
    """Bounds of the measures of the same names; per frame means per frame of the world, not of the source."""

    turn_jitter: float = 6.0  # most degrees per frame squared, root mean square
    step_jitter: float = 1.0  # most change of step between frames, in parts of the typical step
    leap: float = 8.0  # longest step in parts of the typical one; beyond it, tracking was lost or the film was cut
    activity: float = 0.2  # least share of frames that move, or turn by ``turning`` degrees
    turning: float = 0.5
    change: float = 0.8  # least mean difference of neighbouring pictures, in grey levels
    darkest: float = 25.0  # mean luma, 0 to 255
    brightest: float = 230.0
    clipped: float = 0.4  # most pixels that are black or white
    contrast: float = 8.0  # least standard deviation of luma inside a picture


def motion_measures(poses: np.ndarray, rows: np.ndarray, limits: QualityLimits) -> dict[str, float]:
    """Jitter and activity of ``T`` frames: ground poses ``[T, 5]`` and action rows ``[T, 6]``."""
    turns = np.diff(poses[:, [HEADING, ELEVATION]], axis=0)
    turns = (turns + 180) % 360 - 180
    steps = np.diff(poses[:, X : Z + 1], axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    moves = rows[1:, [LONGITUDINAL, LATERAL]].any(axis=1)
    typical = float(np.median(lengths[moves])) if moves.any() else 0.0
    active = moves | (np.abs(rows[1:, [PITCH, YAW]]).max(axis=1) >= limits.turning)
    return {
        "turn_jitter": _rms(np.diff(turns, axis=0)),
        "step_jitter": _rms(np.diff(steps, axis=0)) / typical if typical else 0.0,
        "leap": float(lengths.max()) / typical if typical else 0.0,
        "activity": float(active.mean()),
    }


def _rms(vectors: np.ndarray) -> float:
    return float(np.sqrt((vectors**2).sum(axis=1).mean())) if len(vectors) else 0.0


def picture_measures(frames: np.ndarray) -> dict[str, float]:
    """Exposure and change of pictures, uint8 ``[T, H, W, 3]``."""
    changes, numbers, before = [], [], None
    for luma in (frame @ LUMA for frame in frames):  # one at a time: all of them would be 600 large pictures
        numbers.append((luma.mean(), ((luma <= DARKEST) | (luma >= BRIGHTEST)).mean(), luma.std()))
        if before is not None:
            changes.append(np.abs(luma - before).mean())
        before = luma
    mean, clipped, contrast = (float(number) for number in np.mean(numbers, axis=0))
    return {"change": float(np.mean(changes)), "luma": mean, "clipped": clipped, "contrast": contrast}


def faults(measures: dict[str, float], limits: QualityLimits) -> list[str]:
    """Why a clip with these measures is refused; empty if it is good."""
    rules = (
        ("turn_jitter", "most", limits.turn_jitter, "the camera shakes"),
        ("step_jitter", "most", limits.step_jitter, "the positions shake"),
        ("leap", "most", limits.leap, "the position leaps"),
        ("activity", "least", limits.activity, "hardly anything is done"),
        ("change", "least", limits.change, "the picture is nearly still"),
        ("luma", "least", limits.darkest, "it is too dark"),
        ("luma", "most", limits.brightest, "it is too bright"),
        ("clipped", "most", limits.clipped, "too much is black or white"),
        ("contrast", "least", limits.contrast, "it has no contrast"),
    )
    found = []
    for name, side, limit, words in rules:
        value = measures[name]
        if not (value <= limit if side == "most" else value >= limit):
            found.append(f"{words} ({name} {value:.3g}, at {side} {limit:g})")
    return found
