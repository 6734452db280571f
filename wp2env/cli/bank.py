"""``wp2 bank``: first frames of recorded clips become the bank of starts that a world brings with it."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from world_model.checkpoint import find_world
from world_model.config import WorldConfig, from_json
from world_model.controls import FIRST_PERSON, PERSPECTIVE, THIRD_PERSON, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.doom.engine import Look
from world_model.data.store import ClipStore
from wp2env.cli.arguments import whole
from wp2env.starts import BANK_FILE, StartBank


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 bank``."""
    parser.add_argument("--data", required=True, type=Path, help="recordings, from `wp2 record doom`")
    parser.add_argument("--world", required=True, type=Path, help="folder of the world that gets the bank")
    parser.add_argument(
        "--count", type=whole(2, 10**5), default=80, help="number of starts, half in each view (default: %(default)s)"
    )


def main(settings: argparse.Namespace) -> None:
    """Write the bank into the world's folder."""
    folder = find_world(settings.world)
    video = from_json((folder / "config.json").read_text(), WorldConfig).video
    clips = choose(ClipStore(settings.data), settings.count)
    size = clips[0].frames.shape[1:3]
    if size != (video.height, video.width):
        raise ValueError(
            f"the pictures of {settings.data} are {size[1]}x{size[0]} and those of the world "
            f"{video.width}x{video.height}; give recordings of the world's size"
        )
    bank = StartBank(
        np.stack([clip.frames[:1] for clip in clips]),
        tuple(_caption(clip) for clip in clips),
        np.array([_view(clip) for clip in clips], np.uint8),
    )
    bank.save(folder / BANK_FILE)
    print(f"wrote {len(bank)} starts to {folder / BANK_FILE}")


def choose(store: ClipStore, count: int) -> list[Clip]:
    """Clips to begin from, half of them in each view, and from as many levels as there are.

    Raises:
        ValueError: when the store has too few.
    """
    visits: Counter[tuple[int | None, int]] = Counter()
    ranked: list[tuple[int, Clip]] = []  # with the number of clips before it that see the same level in the same view
    for index in np.random.default_rng(0).permutation(len(store)):
        clip = store[int(index)]
        place = clip.meta.get("level_seed"), _view(clip)
        ranked.append((visits[place], clip))
        visits[place] += 1
    ranked.sort(key=lambda pair: pair[0])
    chosen: list[Clip] = []
    for view, wanted, name in ((THIRD_PERSON, count // 2, "third"), (FIRST_PERSON, count - count // 2, "first")):
        found = [clip for _, clip in ranked if _view(clip) == view][:wanted]
        if len(found) < wanted:
            raise ValueError(
                f"only {len(found)} clips begin in {name} person, and {count} starts need {wanted}; "
                "record more clips or ask for fewer starts with --count"
            )
        chosen += found
    return chosen


def _view(clip: Clip) -> int:
    return int(clip.actions[0, PERSPECTIVE])


def _caption(clip: Clip) -> StructuredCaption:
    """The first frame's caption, with the character as it is seen in third person."""
    caption = clip.captions[0][1]
    if _view(clip) == THIRD_PERSON or "look" not in clip.meta:
        return caption
    return caption.replace(character=Look(**clip.meta["look"]).caption())
