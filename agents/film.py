"""Episodes as a video: the same starts side by side, with their outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from agents.evaluate import Evaluation
from wp2env.cli.video import enlarge, write_video

ZOOM, BORDER, GAP = 3, 6, 10  # size of a pixel, width of the frame around a picture, and space between pairs
RUNNING, SUCCESS, FAILURE = (70, 70, 70), (40, 200, 60), (220, 40, 40)
FILMED = 8  # episodes that a video shows
WIDEST = 4  # pictures in a row
LAST_SECONDS = 1.5  # for which the outcomes stay


class Film:
    """Keeps the pictures of the first ``count`` episodes; a `Watcher`."""

    def __init__(self, count: int) -> None:
        self.frames: list[list[np.ndarray]] = [[] for _ in range(count)]

    def __call__(self, episode: int, frame: np.ndarray) -> None:
        """Keep a picture uint8 ``[H, W, 3]``."""
        if episode < len(self.frames):
            self.frames[episode].append(np.array(frame))

    def pictures(self, evaluation: Evaluation, length: int) -> list[list[np.ndarray]]:
        """By time and episode: framed in grey, and from the end on in green or red with the letter S or F."""
        outcomes = [None if evaluation.successes is None else bool(evaluation.successes[e]) for e in self._episodes()]
        return [
            [_framed(frames[min(time, len(frames) - 1)], outcome if time >= len(frames) - 1 else None)
             for frames, outcome in zip(self.frames, outcomes, strict=True)]
            for time in range(length)
        ]  # fmt: skip

    def _episodes(self) -> range:
        return range(len(self.frames))


def write_film(file: Path, films: Sequence[Film], evaluations: Sequence[Evaluation], rate: float) -> None:
    """Write the episodes of one film, or of several with the same starts in pairs, the first one on the left.

    The file is written under a temporary name and then renamed.
    """
    longest = max(len(frames) for film in films for frames in film.frames)
    length = longest + round(LAST_SECONDS * rate)
    by_film = [film.pictures(evaluation, length) for film, evaluation in zip(films, evaluations, strict=True)]
    moments = [
        _tiled([_side_by_side(pair) for pair in zip(*moment, strict=True)], len(films))
        for moment in zip(*by_film, strict=True)
    ]
    write_video(file, moments, rate, zoom=1)


def _framed(frame: np.ndarray, outcome: bool | None) -> np.ndarray:
    colour = RUNNING if outcome is None else SUCCESS if outcome else FAILURE
    picture = cv2.copyMakeBorder(enlarge(frame, ZOOM), *[BORDER] * 4, cv2.BORDER_CONSTANT, value=colour)
    if outcome is not None:
        place = (BORDER + 6, BORDER + 26)
        cv2.putText(picture, "S" if outcome else "F", place, cv2.FONT_HERSHEY_SIMPLEX, 0.9, colour, 2, cv2.LINE_AA)
    return picture


def _side_by_side(pictures: Sequence[np.ndarray]) -> np.ndarray:
    return cv2.copyMakeBorder(np.concatenate(pictures, axis=1), GAP, 0, GAP, 0, cv2.BORDER_CONSTANT)


def _tiled(pictures: list[np.ndarray], columns_each: int) -> np.ndarray:
    columns = min(len(pictures), max(1, WIDEST // columns_each))
    missing = -len(pictures) % columns
    pictures = pictures + [np.zeros_like(pictures[0])] * missing
    rows = [np.concatenate(pictures[k : k + columns], axis=1) for k in range(0, len(pictures), columns)]
    return np.concatenate(rows)
