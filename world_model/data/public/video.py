"""Decoded video frames at a world's size: chosen ones, in order, one at a time.

Frames are told apart by number, so a video is taken to have one frame rate throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

NAMES = (".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v")


@dataclass(frozen=True)
class VideoFacts:
    """What the container says about a video. ``frames`` may be wrong by a few in some containers."""

    frame_rate: float  # frames per second
    frames: int


@contextmanager
def _opened(path: Path) -> Iterator[cv2.VideoCapture]:
    capture = cv2.VideoCapture(str(path)) if path.is_file() else None
    try:
        if capture is None or not capture.isOpened():
            what = "does not exist" if capture is None else "is not a video that OpenCV can read"
            raise ValueError(f"{path} {what}; fetch it again or take it out")
        yield capture
    finally:
        if capture is not None:
            capture.release()


def facts(path: Path) -> VideoFacts:
    """Frame rate and length of a video; ValueError if it cannot be read."""
    with _opened(path) as capture:
        rate, frames = capture.get(cv2.CAP_PROP_FPS), int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    if not (np.isfinite(rate) and rate > 0 and frames > 0):
        raise ValueError(f"{path} does not tell its frame rate or length; convert it to mp4 first")
    return VideoFacts(rate, frames)


def sampled(video: VideoFacts, first: int, last: int, frame_rate: float, path: Path) -> np.ndarray:
    """The numbers of the frames ``first..last`` that are nearest to ``frame_rate`` a second, int64 ascending.

    Raises ValueError for a video that has fewer frames a second than asked for: it would stand still in between.
    """
    step = video.frame_rate / frame_rate
    if step < 0.99:
        have, want = video.frame_rate, frame_rate
        raise ValueError(f"{path} has {have:g} frames a second, {want:g} are asked for; choose a lower rate")
    numbers = first + np.arange(int((last - first) / step) + 1) * step
    return np.minimum(np.round(numbers), last).astype(np.int64)


def read_frames(path: Path, numbers: np.ndarray, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """The frames with the given ascending numbers as uint8 RGB ``[H, W, 3]``; ValueError if one cannot be decoded.

    Frames in between are skipped over without converting them; nothing relies on seeking, which is not exact.
    """
    with _opened(path) as capture:
        at = -1
        for number in numbers:
            while at < number:
                if not capture.grab():
                    raise ValueError(
                        f"{path}, frame {at + 1}: the video cannot be decoded from here on; fetch it again"
                    )
                at += 1
            decoded, picture = capture.retrieve()
            if not decoded:
                raise ValueError(f"{path}, frame {at}: the frame cannot be decoded; fetch it again")
            yield fit(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), size)


def fit(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scale a picture ``[h, w, 3]`` until it covers ``size`` (height, width) and cut off what sticks out evenly."""
    height, width = size
    scale = max(height / picture.shape[0], width / picture.shape[1])
    rows, columns = (max(want, round(have * scale)) for want, have in zip(size, picture.shape, strict=False))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    picture = cv2.resize(picture, (columns, rows), interpolation=how)
    top, left = (rows - height) // 2, (columns - width) // 2
    return np.ascontiguousarray(picture[top : top + height, left : left + width])
