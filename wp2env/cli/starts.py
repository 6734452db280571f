"""``wp2 starts``: banks of starts of a task.

``doom`` records places from which both the generated world and the true game can begin, ``recordings`` takes moments
of recordings, which only a world can go on from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from world_model.data.doom.recipe import LEVEL_SEEDS
from world_model.data.doom.tasks import EXPLORE, TASKS
from world_model.data.joined import JoinedStore
from wp2env.cli.arguments import MAX_SEED, whole
from wp2env.recorded_starts import starts_on_the_way

SIZES = 8, 480  # pixels that the engine draws


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 starts doom``."""
    parser.add_argument(
        "--task", required=True, choices=(EXPLORE, *(task.name for task in TASKS)), help="its goal is in view"
    )
    parser.add_argument("--count", required=True, type=whole(1, 10**4), help="number of starts, each in its own level")
    parser.add_argument("--split", required=True, choices=tuple(LEVEL_SEEDS), help="no level is in two of them")
    _add_shared(parser)
    parser.add_argument("--size", type=whole(*SIZES), default=64, help="pixels of a side (default: %(default)s)")


def add_recordings_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 starts recordings``."""
    parser.add_argument("--task", required=True, help="that the recordings know the reward of")
    parser.add_argument("--data", required=True, type=Path, nargs="+", help="recordings, from `wp2 record doom`")
    parser.add_argument("--count", required=True, type=whole(1, 10**5), help="number of starts, each another moment")
    _add_shared(parser)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, type=Path, help="file to write, usually .safetensors")
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="another list (default: %(default)s)")
    parser.add_argument(
        "--frames", type=whole(1, 64), default=4, help="of each start, the newest one last (default: %(default)s)"
    )


def main(settings: argparse.Namespace) -> None:
    """Record the starts and write them."""
    from world_model.data.doom.task_starts import record_task_starts  # needs ViZDoom, unlike the help
    from wp2env.game_starts import bank_of

    _check_writable(settings.out)
    numbers = {name: getattr(settings, name) for name in ("split", "seed", "frames", "size")}
    starts = record_task_starts(settings.task, settings.count, **numbers)
    bank = bank_of(list(tqdm(starts, total=settings.count, unit="start", desc="recording starts", disable=None)))
    bank.save(settings.out)
    print(f"wrote {len(bank)} starts of {settings.task!r} ({settings.split}) to {settings.out}")


def recordings_main(settings: argparse.Namespace) -> None:
    """Choose moments of recordings and write them."""
    _check_writable(settings.out)
    generator = np.random.default_rng(settings.seed)
    bank = starts_on_the_way(JoinedStore(settings.data), settings.task, settings.count, settings.frames, generator)
    bank.save(settings.out)
    print(f"wrote {len(bank)} recorded moments before {settings.task!r} is fulfilled to {settings.out}")


def _check_writable(out: Path) -> None:
    if not out.parent.is_dir():
        raise ValueError(f"the folder {out.parent} does not exist; make it, or give another --out")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; give --out the name of a file")
