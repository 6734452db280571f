"""The video and the strip: before above after, the world beside the game."""

from __future__ import annotations

import imageio.v2 as imageio
import numpy as np
import pytest

from agents.film import BORDER, GAP, ZOOM
from agents.places import GAME, WORLD
from agents.story.video import HEADING, MARGIN, MOMENTS, strip, write_before_after

SIZE = 64 * ZOOM + 2 * BORDER
WIDE, HIGH = MARGIN + SIZE // 2, HEADING + SIZE // 2  # middle of the first picture, but for a gap


@pytest.fixture
def rows(make_played):
    """Pictures get brighter; the game's episodes are longer, and the later agent reaches the ball."""
    return {
        name: {WORLD: make_played(reached, frames=4), GAME: make_played(reached, frames=8)}
        for name, reached in (("before training", 0), ("after training", 10))
    }


def test_the_video_has_a_row_for_each_policy_and_a_pair_for_each_start(rows, tmp_path):
    write_before_after(tmp_path / "film.mp4", rows)
    frames = [np.asarray(frame) for frame in imageio.mimread(tmp_path / "film.mp4", memtest=False)]
    assert len(frames) == 9 + round(1.5 * 9)  # the longest episode, and a while to see the outcomes
    assert frames[0].shape == (HEADING + 2 * (SIZE + GAP), MARGIN + 2 * (2 * SIZE + GAP) + GAP, 3)
    world, game = frames[-1][HIGH, WIDE + GAP].mean(), frames[-1][HIGH, WIDE + GAP + SIZE].mean()
    assert world == pytest.approx(65, abs=12) and game == pytest.approx(145, abs=12)
    lost, won = (frames[-1][HIGH + row * (SIZE + GAP), MARGIN + GAP + BORDER // 2].astype(int) for row in (0, 1))
    assert lost[0] > lost[1] + 60 and won[1] > won[0] + 60
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


def test_the_strip_goes_from_the_first_picture_to_the_last(rows):
    picture = strip(rows)
    assert picture.dtype == np.uint8
    assert picture.shape == (4 * (SIZE + GAP), MARGIN + MOMENTS * SIZE + GAP, 3)
    first, last = picture[SIZE // 2, WIDE], picture[SIZE // 2, WIDE + (MOMENTS - 1) * SIZE]
    assert first[0] == 5 and last[0] == 65  # the world's episode is over halfway, and stays
    assert picture[SIZE + GAP + SIZE // 2, WIDE + (MOMENTS - 1) * SIZE, 0] == 145
