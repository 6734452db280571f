"""Pieces that overlap make the whole trajectory again, whatever world each of them was tracked in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.data.public.poses import PoseError, Trajectory
from world_model.data.public.stitching import StitchingLimits, stitch


def elsewhere(cameras, seed):
    """The same cameras in another world: turned, moved and scaled."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    moved = cameras.copy()
    moved[:, :3, :3] = turn @ cameras[:, :3, :3]
    moved[:, :3, 3] = rng.uniform(0.2, 5) * cameras[:, :3, 3] @ turn.T + rng.normal(size=3)
    return moved


def pieces_of(cameras, cuts, overlap):
    starts, ends = [0, *cuts], [*(cut + overlap for cut in cuts), len(cameras)]
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        part = cameras[start:end]
        yield Trajectory(np.arange(start, end, dtype=float), elsewhere(part, k) if k else part, f"piece {k}")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    cuts=st.sets(st.integers(5, 50), min_size=1, max_size=3),
    overlap=st.integers(6, 9),
)
def test_pieces_are_the_whole(walk, stroll, seed, cuts, overlap):
    rows = stroll(60, seed)
    rows[:, 2] = 1  # always moving, so that every overlap tells the scale
    cameras = walk(rows)
    pieces = list(pieces_of(cameras, sorted(cuts), overlap))
    whole = stitch(pieces[::-1])
    assert np.array_equal(whole.frames, np.arange(60.0))
    assert np.allclose(whole.cameras, cameras, atol=1e-6)


def test_one_piece_is_itself(walk, stroll):
    piece = Trajectory(np.arange(9.0), walk(stroll(9)), "only")
    assert stitch([piece]) is piece


def test_pieces_that_stand_still_where_they_meet_keep_their_scale(walk, stroll):
    rows = stroll(20)
    rows[8:14, 2] = 0
    cameras = walk(rows)
    pieces = [Trajectory(np.arange(a, b, dtype=float), cameras[a:b], f"{a}") for a, b in ((0, 13), (9, 20))]
    assert np.allclose(stitch(pieces).cameras, cameras, atol=1e-6)


def test_pieces_that_do_not_meet_are_named(walk, stroll):
    cameras = walk(stroll(20))
    pieces = [Trajectory(np.arange(a, b, dtype=float), cameras[a:b], f"{a}.npz") for a, b in ((0, 10), (9, 20))]
    with pytest.raises(PoseError, match=r"^9\.npz, frame 9: it shares 1 frames with the pieces before it"):
        stitch(pieces)
    assert len(stitch(pieces, StitchingLimits(overlap=1)).frames) == 20


@pytest.mark.parametrize(("spoil", "message"), [("turn", "turns .* degrees away"), ("shift", "lies .* away")])
def test_pieces_that_disagree_are_named(walk, stroll, spoil, message):
    rows = stroll(20)
    rows[:, 2] = 1
    cameras = walk(rows)
    other = cameras[8:].copy()
    if spoil == "turn":
        other[2, :3, :3] = other[2, :3, :3] @ walk([[0, 30, 0, 0, 1, 0]])[0, :3, :3]
    else:
        other[2, :3, 3] += [0, 3, 0]
    pieces = [
        Trajectory(np.arange(a, b, dtype=float), c, f"{a}.npz") for a, b, c in ((0, 14, cameras[:14]), (8, 20, other))
    ]
    with pytest.raises(PoseError, match=rf"^8\.npz, frame 10: it {message}"):
        stitch(pieces)
