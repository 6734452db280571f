"""Pictures for people: a grid of frames, and a window that shows one picture after the other."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

SHOWN_SIZE = 512  # pixels of the longer side, at least; small pictures are enlarged by whole factors


def tile(frames: np.ndarray) -> np.ndarray:
    """Frames ``[B, H, W, 3]`` as one picture, a grid that is as square as it can be; empty places are black."""
    count, height, width = frames.shape[:3]
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    grid = np.zeros((rows * columns, height, width, 3), dtype=np.uint8)
    grid[:count] = frames
    return grid.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)


def open_display(remedy: str) -> Any:
    """Pygame with its display started.

    Raises:
        RuntimeError: where no display is, with what to do instead, the end of a sentence.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    import pygame

    reason = "no display was found"
    try:
        pygame.display.init()
    except pygame.error as error:
        reason = str(error)
    # Where SDL finds no display it draws where nobody sees it; only who asks for that by name shall have it.
    hidden = pygame.display.get_init() and pygame.display.get_driver() in ("offscreen", "dummy")
    if not pygame.display.get_init() or (hidden and not os.environ.get("SDL_VIDEODRIVER")):
        pygame.display.quit()
        raise RuntimeError(f"no window can be opened here ({reason}); {remedy}")
    return pygame


class Window:
    """A window that keeps pace with ``fps`` pictures per second; it opens with the first picture.

    A window that its user closes stays closed, and the episode goes on.
    """

    def __init__(self, title: str, fps: float) -> None:
        try:
            import pygame  # noqa: F401, the window opens later, what is missing is said now
        except ImportError as error:
            raise DependencyNotInstalled(
                "render_mode 'human' needs pygame; run `pip install 'worldplay2-gym[play]'` or render 'rgb_array'"
            ) from error
        self._pygame: Any = None
        self.title, self.fps = title, fps
        self._screen = self._clock = None
        self.closed = False

    def show(self, picture: np.ndarray) -> None:
        """Draw a picture, uint8 ``[H, W, 3]``, and wait for its turn."""
        if self.closed:
            return
        factor = max(1, math.ceil(SHOWN_SIZE / max(picture.shape[:2])))
        size = (picture.shape[1] * factor, picture.shape[0] * factor)
        if self._screen is None:
            self._pygame = open_display("render 'rgb_array' on a machine without a display")
            self._pygame.display.set_caption(self.title)
            self._screen, self._clock = self._pygame.display.set_mode(size), self._pygame.time.Clock()
        pygame = self._pygame
        surface = pygame.surfarray.make_surface(picture.swapaxes(0, 1))
        self._screen.blit(pygame.transform.scale(surface, size), (0, 0))
        pygame.display.flip()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
        else:
            self._clock.tick(self.fps)

    def close(self) -> None:
        """Close the window; it does not open again."""
        if self._screen is not None:
            self._pygame.display.quit()
        self._screen, self.closed = None, True
