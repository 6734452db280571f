"""The frames that are asked for, at the size that is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from world_model.data.public.video import VideoFacts, facts, fit, read_frames, sampled


@pytest.fixture(scope="module")
def clip(tmp_path_factory, film):
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    film(path, np.arange(30) * 3, rate=10.0)
    return path


def test_facts_and_frames(clip):
    assert facts(clip) == VideoFacts(10.0, 30)
    every = list(read_frames(clip, np.arange(30), (36, 64)))
    some = list(read_frames(clip, np.array([0, 4, 4, 29]), (36, 64)))
    assert [frame.shape for frame in some] == [(36, 64, 3)] * 4
    assert all(np.array_equal(frame, every[k]) for frame, k in zip(some, (0, 4, 4, 29), strict=True))
    assert np.abs(every[0].astype(int) - every[1]).mean() > 5


def test_colours_are_red_green_blue(tmp_path):
    import cv2

    writer = cv2.VideoWriter(str(tmp_path / "red.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 10, (64, 32))
    for _ in range(5):
        writer.write(np.full((32, 64, 3), (0, 0, 250), np.uint8))
    writer.release()
    frame = next(read_frames(tmp_path / "red.mp4", np.array([2]), (32, 32)))
    assert frame[..., 0].min() > 200 and frame[..., 1:].max() < 50


@given(st.integers(8, 90), st.integers(8, 90), st.integers(8, 64), st.integers(8, 64))
def test_fit_covers_and_keeps_the_middle(height, width, want_height, want_width):
    picture = np.full((height, width, 3), 90, np.uint8)
    assert fit(picture, (want_height, want_width)).shape == (want_height, want_width, 3)
    assert (fit(picture, (want_height, want_width)) == 90).all()


def test_fit_cuts_both_sides_evenly():
    picture = np.zeros((10, 30, 3), np.uint8)
    picture[:, 10:20] = 200
    assert (fit(picture, (10, 10)) == 200).all()


@given(st.floats(1, 60), st.floats(1, 60), st.integers(0, 5), st.integers(10, 300))
def test_sampled_frames_are_the_nearest_ones(have, want, first, last):
    if have / want < 0.99:
        with pytest.raises(ValueError, match="frames a second"):
            sampled(VideoFacts(have, last + 1), first, last, want, Path("v.mp4"))
        return
    numbers = sampled(VideoFacts(have, last + 1), first, last, want, Path("v.mp4"))
    assert numbers[0] == first and numbers[-1] <= last and (np.diff(numbers) >= 0).all()
    assert np.abs(numbers - first - np.arange(len(numbers)) * have / want).max() <= 0.5 + 1e-6


def test_what_cannot_be_read_is_named(tmp_path, clip):
    with pytest.raises(ValueError, match=r"none\.mp4 does not exist"):
        facts(tmp_path / "none.mp4")
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(ValueError, match=r"text\.mp4 is not a video"):
        facts(tmp_path / "text.mp4")
    with pytest.raises(ValueError, match=r"clip\.mp4, frame 30: the video cannot be decoded from here on"):
        list(read_frames(clip, np.array([3, 40]), (8, 8)))
