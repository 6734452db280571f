"""One trajectory from pieces that overlap, when a long video was tracked in parts.

Each piece has a world of its own: another origin, another orientation and, since a single camera does not see how
large things are, another scale. The frames that two neighbours share tell all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from world_model.data.public.poses import PoseError, Trajectory, between


@dataclass(frozen=True)
class StitchingLimits:
    """When pieces fit together."""

    overlap: int = 3  # poses that neighbours must share
    still: float = 1e-6  # root mean square spread of shared positions below which they do not tell the scale
    turn: float = 5.0  # degrees that shared orientations may differ after the alignment
    shift: float = 0.2  # distance of shared positions after the alignment, in parts of their spread


def stitch(pieces: Sequence[Trajectory], limits: StitchingLimits | None = None) -> Trajectory:
    """Join pieces of one video into the world of the first one; shared frames are cross-faded.

    Raises `PoseError`, with the file and the frame, where two pieces share too few frames or disagree about them.
    """
    limits = limits or StitchingLimits()
    pieces = sorted(pieces, key=lambda piece: piece.frames[0])
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = _join(whole, piece, limits)
    return whole


def _join(whole: Trajectory, piece: Trajectory, limits: StitchingLimits) -> Trajectory:
    _, ours, theirs = np.intersect1d(whole.frames, piece.frames, return_indices=True)
    if len(ours) < limits.overlap:
        shared = f"it shares {len(ours)} frames with the pieces before it, at least {limits.overlap} are needed"
        raise PoseError(piece.source, float(piece.frames[0]), shared)
    moved = align(piece.cameras, whole.cameras[ours], piece.cameras[theirs], limits)
    _compare(whole.cameras[ours], moved[theirs], piece, piece.frames[theirs], limits)
    cameras = dict(zip(whole.frames, whole.cameras, strict=True))
    shares = np.linspace(0, 1, len(ours) + 2)[1:-1]
    faded = [between(whole.cameras[a], moved[b], s) for a, b, s in zip(ours, theirs, shares, strict=True)]
    cameras |= dict(zip(piece.frames, moved, strict=True)) | dict(zip(whole.frames[ours], faded, strict=True))
    frames = np.array(sorted(cameras))
    return Trajectory(frames, np.stack([cameras[frame] for frame in frames]), whole.source)


def align(cameras: np.ndarray, target: np.ndarray, own: np.ndarray, limits: StitchingLimits) -> np.ndarray:
    """Move cameras ``[N, 4, 4]`` by the similarity that best takes the shared ``own`` to ``target`` (both [K, 4, 4]).

    The rotation is the chordal mean of the shared relative ones, since a straight path does not tell the turn about
    itself; the scale is the ratio of the spreads of the shared positions.
    """
    left, _, right = np.linalg.svd((target[:, :3, :3] @ np.swapaxes(own[:, :3, :3], 1, 2)).sum(axis=0))
    rotation = left @ np.diag([1, 1, np.linalg.det(left @ right)]) @ right
    own_spread, target_spread = _spread(own), _spread(target)
    known = min(own_spread, target_spread) > limits.still
    scale = target_spread / own_spread if known else 1.0
    offset = target[:, :3, 3].mean(axis=0) - scale * rotation @ own[:, :3, 3].mean(axis=0)
    moved = cameras.copy()
    moved[:, :3, :3] = rotation @ cameras[:, :3, :3]
    moved[:, :3, 3] = scale * cameras[:, :3, 3] @ rotation.T + offset
    return moved


def _spread(cameras: np.ndarray) -> float:
    positions = cameras[:, :3, 3]
    return float(np.sqrt(((positions - positions.mean(axis=0)) ** 2).sum(axis=1).mean()))


def _compare(ours: np.ndarray, theirs: np.ndarray, piece: Trajectory, frames: np.ndarray, limits: StitchingLimits):
    cosine = (np.trace(np.swapaxes(ours[:, :3, :3], 1, 2) @ theirs[:, :3, :3], axis1=1, axis2=2) - 1) / 2
    turns = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    shifts = np.linalg.norm(ours[:, :3, 3] - theirs[:, :3, 3], axis=1)
    worst = int(np.argmax(turns))
    if turns[worst] > limits.turn:
        problem = f"it turns {turns[worst]:.1f} degrees away from the piece before it, allowed are {limits.turn:g}"
        raise PoseError(piece.source, float(frames[worst]), problem)
    worst, allowed = int(np.argmax(shifts)), max(limits.shift * _spread(ours), limits.still * 10)
    if shifts[worst] > allowed:
        problem = f"it lies {shifts[worst]:.3g} away from the piece before it, allowed are {allowed:.3g}"
        raise PoseError(piece.source, float(frames[worst]), problem)
