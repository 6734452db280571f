"""Pictures with lines of text under them, and video files of such pictures."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from world_model.controls import FIRST_PERSON, NOTHING, FrameAction

SUFFIXES = (".mp4", ".gif")
LINE, MARGIN, SCALE = 18, 6, 0.42  # pixels of a text line, of the space around it, and the font's size
SAMPLE = "a room with banded white walls, turn +12"
SHORTEST = 8  # letters of a line at least
GREY, YELLOW = (150, 150, 150), (255, 210, 80)

Lines = list[tuple[str, tuple[int, int, int]]]  # texts with their colours


@dataclass(frozen=True)
class Strip:
    """What is written under a frame: the controls, and the event in force."""

    row: np.ndarray  # float32 [6]
    event: str

    def lines(self) -> Lines:
        """The texts with their colours; an empty one where there is nothing to say."""
        action = FrameAction.from_row(self.row)
        words = [
            "first person" if action.perspective == FIRST_PERSON else "third person",
            {1: "forward", -1: "back"}.get(action.longitudinal, ""),
            {1: "right", -1: "left"}.get(action.lateral, ""),
            f"turn {action.yaw:+g}" if action.yaw else "",
            f"tilt {action.pitch:+g}" if action.pitch else "",
            "jump" if action.jump else "",
        ]
        return [(" ".join(filter(None, words)), GREY), ("" if self.event == NOTHING else self.event, YELLOW)]


def check_video(file: Path) -> None:
    """Refuse a file that `write_video` could not write, before anything is generated.

    Raises:
        ValueError: for an unknown kind of file, a missing folder, or a place that cannot be written to.
    """
    if file.suffix not in SUFFIXES:
        raise ValueError(f"{file} is no video file; give a name that ends in {' or '.join(SUFFIXES)}")
    if not file.parent.is_dir():
        raise ValueError(f"the folder {file.parent} does not exist; make it first")
    if file.is_dir():
        raise ValueError(f"{file} is a folder; give another name")
    try:
        _part(file).touch()
        _part(file).unlink()
    except OSError as error:
        raise ValueError(f"{file} cannot be written ({error.strerror}); give another place") from error


def write_video(
    file: Path, frames: Sequence[np.ndarray], rate: float, zoom: int, strips: Sequence[Strip] | None = None
) -> None:
    """Write uint8 frames ``[H, W, 3]`` at ``rate`` a second, each pixel ``zoom`` pixels wide.

    The file is written under a temporary name and then renamed, so that one that exists is whole.
    """
    import imageio.v2 as imageio

    pictures: Iterable[np.ndarray] = (enlarge(frame, zoom) for frame in frames)
    if strips is not None:
        texts = [wrap(strip.lines(), frames[0].shape[1] * zoom) for strip in strips]
        height = max(map(len, texts))
        pictures = (with_lines(picture, text, height) for picture, text in zip(pictures, texts, strict=True))
    if file.suffix == ".gif":
        options = {"duration": 1000 / rate, "loop": 0}
    else:
        options = {"fps": rate, "codec": "libx264", "macro_block_size": 2}  # which takes even sizes only
    try:
        with imageio.get_writer(_part(file), **options) as writer:
            for picture in pictures:
                writer.append_data(picture)
        os.replace(_part(file), file)
    finally:
        _part(file).unlink(missing_ok=True)


def enlarge(frame: np.ndarray, zoom: int) -> np.ndarray:
    """A frame ``[H, W, 3]`` whose pixels are squares of ``zoom`` x ``zoom``."""
    return frame.repeat(zoom, axis=0).repeat(zoom, axis=1)


def wrap(lines: Lines, width: int) -> Lines:
    """The lines broken where they would be wider than a picture; each is one line at least."""
    (sample, _), _ = cv2.getTextSize(SAMPLE, cv2.FONT_HERSHEY_SIMPLEX, SCALE, 1)
    letters = max(SHORTEST, int(0.95 * (width - 2 * MARGIN) * len(SAMPLE) / sample))
    return [(piece, colour) for text, colour in lines for piece in textwrap.wrap(text, letters) or [""]]


def with_lines(picture: np.ndarray, lines: Lines, height: int) -> np.ndarray:
    """A picture with a strip of ``height`` lines under it, of which the given ones are written."""
    below = np.zeros((height * LINE + 2 * MARGIN, picture.shape[1], 3), dtype=np.uint8)
    for index, (text, colour) in enumerate(lines):
        foot = (MARGIN, MARGIN + (index + 1) * LINE - 5)
        cv2.putText(below, text, foot, cv2.FONT_HERSHEY_SIMPLEX, SCALE, colour, 1, cv2.LINE_AA)
    return np.concatenate([picture, below])


def _part(file: Path) -> Path:
    return file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
