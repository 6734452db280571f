"""Pictures for people: the grid and the window."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled

from wp2env.window import Window, tile


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (5, 2, 3), (9, 3, 3)])
def test_frames_fill_a_grid_row_by_row(count, rows, columns):
    frames = np.stack([np.full((4, 6, 3), number + 1, np.uint8) for number in range(count)])
    grid = tile(frames)
    assert grid.shape == (rows * 4, columns * 6, 3)
    cells = grid[::4, ::6, 0].ravel().tolist()
    assert cells == [*range(1, count + 1), *[0] * (rows * columns - count)]


def test_a_window_that_its_user_closes_stays_closed_and_the_game_goes_on(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    window = Window("test", fps=1000)
    picture = np.zeros((32, 32, 3), np.uint8)
    window.show(picture)
    assert window._screen.get_size() == (512, 512)  # small pictures are enlarged
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    window.show(picture)
    assert window.closed
    window.show(picture)
    assert window._screen is None


def test_without_pygame_the_window_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(DependencyNotInstalled, match=r"needs pygame; run `pip install 'worldplay2-gym\[play\]'`"):
        Window("test", fps=9)


def test_without_a_display_the_window_says_what_to_render(monkeypatch):
    import pygame

    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
    with pytest.raises(RuntimeError, match="no window can be opened here .*; render 'rgb_array'"):
        Window("test", fps=1000).show(np.zeros((32, 32, 3), np.uint8))
    assert not pygame.display.get_init()
