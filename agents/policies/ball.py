"""Where the red ball is in a picture: found by colour and shape, without learning."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

RED_OVER_OTHERS = 3.0  # a pixel is red when green and blue together are below a third of red
LEVELS = (56, 88, 112, 136, 160, 184, 204, 220, 232, 244)  # of red: one of them parts a lit ball from a darker red wall
SMALLEST = 4  # pixels of height
TALL = 1.15  # height of the ball over its width, as the game draws it
WIDEST, NARROWEST = 1.35, 0.6  # width over height
ROUND = 0.8  # overlap with an ellipse (intersection over union) that counts as a ball
BELOW, SLACK = (0.45, 1.3), 1.5  # how far its foot is below the horizon, in its own heights, give or take pixels: all
# balls stand on the floor and are equally large, and the cross of a health pack is smaller where it stands as low
UPPER = 0.6  # part of the ball that is judged; the figure's own weapon may hide the rest


@dataclass(frozen=True)
class Ball:
    """A ball in a picture; ``offset`` and ``height`` are in widths and heights of the picture.

    ``offset`` is 0 in the middle, -0.5 at the left border and 0.5 at the right one.
    """

    offset: float
    height: float
    roundness: float


def find_ball(frame: np.ndarray) -> Ball | None:
    """The roundest red blob of a picture uint8 ``[H, W, 3]``, the largest among equals; None where there is none."""
    colours = frame.astype(np.float32)
    red = np.where(colours[..., 0] > RED_OVER_OTHERS * (colours[..., 1] + colours[..., 2]), frame[..., 0], 0)
    best = None
    for level in LEVELS:
        mask = (red >= level).astype(np.uint8)
        if not mask.any():
            break
        count, labels, boxes, _ = cv2.connectedComponentsWithStats(mask, connectivity=4)
        for label in range(1, count):
            ball = _as_ball(labels == label, boxes[label])
            if ball is not None and (best is None or _rank(ball) > _rank(best)):
                best = ball
    return best


def _rank(ball: Ball) -> float:
    return ball.roundness + 0.5 * ball.height


def _as_ball(blob: np.ndarray, box: np.ndarray) -> Ball | None:
    """The ball that a blob (bool ``[H, W]``) shows; a side that the picture cuts off is added in thought."""
    (rows, columns), (left, top, width, height) = blob.shape, box[:4].tolist()
    if height < SMALLEST or width < SMALLEST // 2 or top == 0:
        return None
    right, bottom = left + width, top + height
    if bottom == rows or height < width / WIDEST:  # the lower part is out of the picture, or behind a weapon
        height = max(height, round(width * TALL))
    whole = max(width, round(height / TALL))
    if left == 0 and right < columns:
        left = right - whole
    elif right == columns and left > 0:
        right = left + whole
    foot = top + height - rows / 2
    stands = BELOW[0] * height - SLACK <= foot <= BELOW[1] * height + SLACK
    if not stands or not NARROWEST <= (right - left) / height <= WIDEST:
        return None
    y, x = np.ogrid[: min(rows, top + max(1, round(UPPER * height))), :columns]
    inside = ((x + 0.5 - (left + right) / 2) / (right - left)) ** 2 + ((y + 0.5 - top) / height - 0.5) ** 2 <= 0.25
    seen = blob[: len(y)]
    roundness = float((inside & seen).sum() / max(1, (inside | seen).sum()))
    if roundness < ROUND:
        return None
    return Ball((left + right) / 2 / columns - 0.5, height / rows, roundness)
