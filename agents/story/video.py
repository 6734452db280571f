"""The same starts before and after training, in the world and in the game, as a video and as a strip of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from agents.film import BORDER, GAP, LAST_SECONDS
from agents.places import PLACES
from agents.playing import Played
from wp2env.cli.video import write_video

MARGIN, HEADING = 84, 30  # pixels on the left and above, for words
WORDS = (210, 210, 210)
MOMENTS = 8  # pictures of the strip in a row

Rows = Mapping[str, Mapping[str, Played]]  # by what stands on the left, and by place


def write_before_after(file: Path, rows: Rows) -> None:
    """Write the filmed episodes: a row for each policy, and for each start a pair, the world left and the game right.

    All move at once; from its end on an episode stands still, framed in green or red. The file is written under a
    temporary name and then renamed.
    """
    everything = [played for places in rows.values() for played in places.values()]
    rate = everything[0].rate
    length = _longest(everything) + round(LAST_SECONDS * rate)
    episodes = len(everything[0].film.frames)
    pictures = {
        (name, place): played.film.pictures(played.evaluation, length)
        for name, places in rows.items()
        for place, played in places.items()
    }
    size = pictures[next(iter(pictures))][0][0].shape[1]
    heading = _heading(episodes, size)

    def line(name: str, time: int) -> np.ndarray:
        by_place = [pictures[name, place][time] for place in PLACES]
        return _line(name, [_pair(pair) for pair in zip(*by_place, strict=True)])

    moments = [np.concatenate([heading, *(line(name, time) for name in rows)]) for time in range(length)]
    write_video(file, moments, rate, zoom=1)


def strip(rows: Rows, episode: int = 0) -> np.ndarray:
    """Moments of one start, uint8 ``[H, W, 3]``: a line for each policy and place, from the first to the last picture.

    Each line is spread over the longest episode of all; where one is over, its last picture stays.
    """
    everything = {(name, place): played for name, places in rows.items() for place, played in places.items()}
    times = np.linspace(0, max(len(played.film.frames[episode]) for played in everything.values()) - 1, MOMENTS)
    lines = []
    for (name, place), played in everything.items():
        moments = played.film.pictures(played.evaluation, int(times[-1]) + 1)
        chosen = [moments[round(time)][episode] for time in times]
        lines.append(_line(f"{name.split()[0]} {place}", chosen))
    return np.concatenate(lines)


def _longest(everything: Sequence[Played]) -> int:
    return max(len(frames) for played in everything for frames in played.film.frames)


def _pair(pictures: Sequence[np.ndarray]) -> np.ndarray:
    return cv2.copyMakeBorder(np.concatenate(pictures, axis=1), 0, 0, GAP, 0, cv2.BORDER_CONSTANT)


def _line(name: str, pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures in a row, with words on the left, one under the other."""
    margin = np.zeros((pictures[0].shape[0], MARGIN, 3), dtype=np.uint8)
    words = name.split()
    for index, word in enumerate(words):
        _write(margin, word, (BORDER, margin.shape[0] // 2 + 20 * index - 10 * (len(words) - 2)))
    return cv2.copyMakeBorder(np.concatenate([margin, *pictures], axis=1), 0, GAP, 0, GAP, cv2.BORDER_CONSTANT)


def _heading(episodes: int, size: int) -> np.ndarray:
    """The places' names above every pair of pictures that are ``size`` pixels wide."""
    width = len(PLACES) * size + GAP
    heading = np.zeros((HEADING, MARGIN + episodes * width + GAP, 3), dtype=np.uint8)
    for episode in range(episodes):
        for column, place in enumerate(PLACES):
            _write(heading, place, (MARGIN + episode * width + GAP + column * size + BORDER, HEADING - 9))
    return heading


def _write(picture: np.ndarray, word: str, foot: tuple[int, int]) -> None:
    cv2.putText(picture, word, foot, cv2.FONT_HERSHEY_SIMPLEX, 0.5, WORDS, 1, cv2.LINE_AA)
