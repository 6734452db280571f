"""`wp2 bank`: first frames of recorded clips become the bank of starts that a world brings with it."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from world_model.controls import PERSPECTIVE, THIRD_PERSON, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.doom.engine import Look
from world_model.data.store import ClipStore
from wp2env.starts import BANK_FILE, StartBank


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `wp2 bank`."""
    parser.add_argument("--data", required=True, type=Path, help="recordings, from `wp2 record doom`")
    parser.add_argument("--world", required=True, type=Path, help="folder of the world that gets the bank")
    parser.add_argument("--count", type=int, default=80, help="number of starts (default 80, half in each view)")


def main(args: argparse.Namespace) -> None:
    """Write the bank, as many starts in first as in third person, one from a clip, levels as different as can be."""
    store = ClipStore(args.data)
    if not args.world.is_dir():
        raise ValueError(f"{args.world} is no folder; give the world that the bank is for")
    views: dict[int, list[Clip]] = {0: [], 1: []}
    for index in np.random.default_rng(0).permutation(len(store)):
        clip = store[int(index)]
        chosen = views[int(clip.actions[0, PERSPECTIVE])]
        if len(chosen) < args.count // 2:
            chosen.append(clip)
    clips = views[0] + views[1]
    if len(clips) < args.count // 2 * 2:
        raise ValueError(f"{args.data} has too few clips for {args.count} starts; record more or ask for fewer")
    bank = StartBank(
        np.stack([clip.frames[:1] for clip in clips]),
        tuple(_caption(clip) for clip in clips),
        np.array([clip.actions[0, PERSPECTIVE] for clip in clips], np.uint8),
    )
    bank.save(args.world / BANK_FILE)
    print(f"wrote {len(clips)} starts to {args.world / BANK_FILE}")


def _caption(clip: Clip) -> StructuredCaption:
    """The first frame's caption, with the character as it is seen in third person."""
    caption = clip.captions[0][1]
    if clip.actions[0, PERSPECTIVE] == THIRD_PERSON:
        return caption
    return caption.replace(character=Look(**clip.meta["look"]).caption())
