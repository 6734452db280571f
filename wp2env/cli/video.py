"""Frames into a video file, with a line about the controls under each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from world_model.controls import FIRST_PERSON, NOTHING, FrameAction

SUFFIXES = (".mp4", ".gif")
MAX_ZOOM = 32
LINE, MARGIN, SCALE = 18, 6, 0.42  # pixels of a text line, of the space around it, and the font's size
GREY, YELLOW = (150, 150, 150), (255, 210, 80)


@dataclass(frozen=True)
class Strip:
    """What is written under a frame."""

    row: np.ndarray  # float32 [6]
    event: str

    def lines(self) -> list[tuple[str, tuple[int, int, int]]]:
        """Texts with their colours: the controls, and the event in force."""
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


def check_video(file: Path, zoom: int) -> None:
    """Refuse what `write_video` could not write, before anything is generated.

    Raises:
        ValueError: for an unknown kind of file, a missing folder or a zoom out of range.
    """
    if file.suffix not in SUFFIXES:
        raise ValueError(f"{file} is no video file; give a name that ends in {' or '.join(SUFFIXES)}")
    if not file.parent.is_dir():
        raise ValueError(f"the folder {file.parent} does not exist; make it first")
    if not 1 <= zoom <= MAX_ZOOM:
        raise ValueError(f"--zoom is {zoom}; give 1 to {MAX_ZOOM}")


def write_video(
    file: Path, frames: Sequence[np.ndarray], rate: float, zoom: int, strips: Sequence[Strip] | None = None
) -> None:
    """Write uint8 frames ``[H, W, 3]`` at ``rate`` a second, each pixel ``zoom`` pixels wide."""
    import imageio.v3 as imageio

    pictures = [frame.repeat(zoom, axis=0).repeat(zoom, axis=1) for frame in frames]
    if strips is not None:
        pictures = [_with_strip(picture, strip) for picture, strip in zip(pictures, strips, strict=True)]
    if file.suffix == ".gif":
        imageio.imwrite(file, pictures, duration=1000 / rate, loop=0)
    else:
        even = [picture[: len(picture) // 2 * 2, : picture.shape[1] // 2 * 2] for picture in pictures]
        imageio.imwrite(file, even, plugin="FFMPEG", fps=rate, codec="libx264", macro_block_size=1)


def _with_strip(picture: np.ndarray, strip: Strip) -> np.ndarray:
    lines = strip.lines()
    below = np.zeros((len(lines) * LINE + 2 * MARGIN, picture.shape[1], 3), dtype=np.uint8)
    for index, (text, colour) in enumerate(lines):
        foot = (MARGIN, MARGIN + (index + 1) * LINE - 5)
        cv2.putText(below, text, foot, cv2.FONT_HERSHEY_SIMPLEX, SCALE, colour, 1, cv2.LINE_AA)
    return np.concatenate([picture, below])
