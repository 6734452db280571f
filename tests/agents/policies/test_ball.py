"""The red ball is found where it is, and not where something else is red."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policies.ball import find_ball


@pytest.mark.parametrize("height", [5, 6, 8, 12, 20, 30, 40])
@pytest.mark.parametrize("centre", [12, 32, 47.5])
def test_a_ball_is_found_where_it_is(picture, centre, height):
    found = find_ball(picture(centre, height))
    assert found.offset == pytest.approx(centre / 64 - 0.5, abs=0.03)
    assert found.height == pytest.approx(height / 64, abs=0.04)


@pytest.mark.parametrize(("centre", "side"), [(0, -1), (3, -1), (61, 1), (64, 1)])
def test_a_ball_cut_off_by_the_border_is_on_that_side(picture, centre, side):
    found = find_ball(picture(centre, 30))
    assert np.sign(found.offset) == side and abs(found.offset) > 0.35


def test_a_ball_before_a_red_wall_is_told_from_it_by_its_light(picture):
    found = find_ball(picture(20, 14, wall=(150, 0, 0), floor=(120, 0, 0)))
    assert found.offset == pytest.approx(20 / 64 - 0.5, abs=0.03)


def test_a_dim_ball_is_found(picture):
    assert find_ball(picture(40, 14, wall=(20, 20, 20), ball=(70, 0, 0))) is not None


def test_a_weapon_before_its_foot_does_not_hide_a_ball(picture):
    frame = picture(34, 36)
    frame[52:, 28:40] = (80, 60, 40)
    assert find_ball(frame).offset == pytest.approx(2 / 64, abs=0.04)


def cross(frame: np.ndarray, top: int, left: int, arm: int) -> np.ndarray:
    """A health pack: a red cross of three by three arms on a white case."""
    frame[top - 2 : top + 3 * arm + 2, left - 2 : left + 3 * arm + 2] = 230
    frame[top + arm : top + 2 * arm, left : left + 3 * arm] = frame[
        top : top + 3 * arm, left + arm : left + 2 * arm
    ] = (220, 0, 0)
    return frame


@pytest.mark.parametrize("arm", [2, 3, 4])
def test_the_cross_of_a_health_pack_is_no_ball(picture, arm):
    assert find_ball(cross(picture(height=0), 38, 20, arm)) is None


def test_red_walls_and_floors_are_no_ball(picture):
    nothing = {"height": 0}
    assert find_ball(picture(**nothing)) is None
    assert find_ball(picture(**nothing, wall=(200, 0, 0))) is None
    assert find_ball(picture(**nothing, floor=(200, 0, 0))) is None
    assert find_ball(np.full((64, 64, 3), (200, 0, 0), dtype=np.uint8)) is None
    door = picture(**nothing)
    door[20:50, 20:34] = (200, 0, 0)
    assert find_ball(door) is None


@pytest.mark.parametrize("colour", [(230, 120, 0), (200, 0, 200), (0, 0, 230), (230, 230, 0)])
def test_balls_of_other_colours_are_left_alone(picture, colour):
    assert find_ball(picture(ball=colour)) is None


@given(st.integers(0, 2**32 - 1), st.sampled_from([(16, 16), (64, 64), (40, 72)]))
def test_any_picture_is_answered(seed, size):
    frame = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    frame[..., 1:] //= 1 + seed % 12
    found = find_ball(frame)
    assert found is None or (0 < found.height <= 2 and abs(found.offset) <= 1.5)
