"""Types of command line options that several commands share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

MAX_SEED = 2**32 - 1
MAX_ZOOM = 32
MAX_DEGREES = 180


def whole(low: int, high: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number from ``low`` to ``high``."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r:.40} does not fit; give a whole number from {low} to {high}")
        return value

    return read


def degrees(text: str) -> float:
    """The type of an option that takes an angle per latent frame."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= MAX_DEGREES:
        raise argparse.ArgumentTypeError(f"{text!r:.40} does not fit; give degrees, up to {MAX_DEGREES} either way")
    return value


def add_world_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every command that runs a world."""
    parser.add_argument("--world", default="doom", help="a bundled world or a folder with one (default: %(default)s)")
    parser.add_argument("--scene", help="begin with a picture made from this text, not with a recorded one")
    parser.add_argument(
        "--seed", type=whole(0, MAX_SEED), default=0, help="chooses the start and what is left to chance"
    )
    parser.add_argument("--steps", type=whole(1, 1000), help="network evaluations per chunk (default: the world's)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
