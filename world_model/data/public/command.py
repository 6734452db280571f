"""``wp2 import``: a public set on disk into a store of clips, and a word about what became of it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from world_model.controls import FIRST_PERSON, THIRD_PERSON
from world_model.data.public import folder, manifest, sekai, spatialvid
from world_model.data.public.captions import load_json
from world_model.data.public.convert import ImportSettings, convert
from world_model.data.public.sources import SourceClip

LAYOUTS = ("sekai", "spatialvid", "folder")
CONVENTIONS = ("camera_to_world", "world_to_camera")
VIEWS = {"fps": FIRST_PERSON, "tps": THIRD_PERSON}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``wp2 import``."""
    usual = ImportSettings()
    parser.add_argument("layout", choices=LAYOUTS, help="how the folder is organised")
    parser.add_argument("--source", type=Path, required=True, help="folder of the public set, already on this machine")
    parser.add_argument("--out", type=Path, required=True, help="folder of the store to write")
    parser.add_argument("--size", type=_size, default=(usual.height, usual.width), help="of a frame: 64 or 448x832")
    parser.add_argument("--rate", type=float, default=usual.frame_rate, help="frames and action rows a second")
    parser.add_argument("--shortest", type=int, default=usual.shortest, help="frames a clip has at least")
    parser.add_argument("--longest", type=int, default=usual.longest, help="frames at which a clip is cut")
    parser.add_argument("--limit", type=int, help="look at the first so many clips only")
    parser.add_argument("--settings", type=Path, help='JSON of thresholds: {"actions": {...}, "quality": {...}}')
    parser.add_argument("--poses", choices=CONVENTIONS, help="sekai, spatialvid: what the poses are, if not as usual")
    parser.add_argument("--licence", default="", help="folder: under which the videos may be used")
    parser.add_argument("--view", choices=VIEWS, help="folder: first or third person (default: fps)")
    parser.add_argument("--skip-broken", action="store_true", help="note clips that cannot be read, and go on")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def main(args: argparse.Namespace) -> None:
    """Run ``wp2 import``; ValueError, in one sentence, for what cannot be read."""
    height, width = args.size
    settings = ImportSettings(height, width, args.rate, args.shortest, args.longest)
    if args.settings:
        settings = with_thresholds(settings, args.settings)
    _check_for_layout(args)
    if not args.source.is_dir():
        raise ValueError(f"{args.source} is no folder; give the folder of the public set with --source")
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit is {args.limit}, at least 1 clip must be looked at")
    clips = tqdm(islice(_clips(args), args.limit), unit="clip", disable=args.no_progress)
    recipe = {"layout": args.layout, "source": str(args.source), "poses": args.poses or "as usual"}
    store, outcome = convert(clips, args.out, settings, args.skip_broken, recipe)
    print(f"{len(store)} clips in {args.out}, {sum(entry.frames for entry in store.entries)} frames")
    left_out = f"{outcome.refused} parts refused, {outcome.broken} clips broken, {outcome.absent} without their video"
    print(f"{left_out}; {args.out / manifest.FILE} tells which and why")


def _check_for_layout(args: argparse.Namespace) -> None:
    """Raise ValueError for an option that the layout has no use for."""
    if args.layout == "folder" and args.poses:
        raise ValueError("--poses is for sekai and spatialvid; the pose files of a folder say themselves what they are")
    if args.layout != "folder" and (args.licence or args.view):
        option = "--licence" if args.licence else "--view"
        raise ValueError(f"{option} is for the layout folder; {args.layout} tells it itself")


def _clips(args: argparse.Namespace) -> Iterator[SourceClip]:
    if args.layout == "folder":
        return folder.read(args.source, args.licence, perspective=VIEWS[args.view or "fps"])
    read = {"sekai": sekai.read, "spatialvid": spatialvid.read}[args.layout]
    if args.poses:
        read = partial(read, world_to_camera=args.poses == "world_to_camera")
    return read(args.source)


def with_thresholds(settings: ImportSettings, path: Path) -> ImportSettings:
    """Settings with the thresholds of a JSON file; ValueError for one that does not exist."""
    content = load_json(path)
    for group, values in content.items() if isinstance(content, dict) else [(str(content)[:20], None)]:
        if group not in ("actions", "quality") or not isinstance(values, dict):
            raise ValueError(f"{path}: {group!r} is no group of thresholds; there are actions and quality")
        known = {item.name for item in fields(getattr(settings, group))}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"{path}: {group} knows no {name!r}; it knows {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{path}: {group}.{name} must be a number, not {value!r}")
        settings = replace(settings, **{group: replace(getattr(settings, group), **values)})
    return settings


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 64 for a square or 448x832 for height x width")
    return int(match[1]), int(match[2] or match[1])
