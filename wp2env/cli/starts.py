"""``wp2 starts doom``: a bank of starts of a task, for the generated world and the true game alike."""

from __future__ import annotations

import argparse
from pathlib import Path

from tqdm import tqdm

from world_model.data.doom.recipe import LEVEL_SEEDS
from world_model.data.doom.tasks import EXPLORE, TASKS
from wp2env.cli.arguments import MAX_SEED, whole

SIZES = 8, 480  # pixels that the engine draws


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 starts doom``."""
    parser.add_argument(
        "--task", required=True, choices=(EXPLORE, *(task.name for task in TASKS)), help="its goal is in view"
    )
    parser.add_argument("--count", required=True, type=whole(1, 10**4), help="number of starts, each in its own level")
    parser.add_argument("--split", required=True, choices=tuple(LEVEL_SEEDS), help="no level is in two of them")
    parser.add_argument("--out", required=True, type=Path, help="file to write, usually .safetensors")
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="another list (default: %(default)s)")
    parser.add_argument(
        "--frames", type=whole(1, 64), default=4, help="of each start, the newest one last (default: %(default)s)"
    )
    parser.add_argument("--size", type=whole(*SIZES), default=64, help="pixels of a side (default: %(default)s)")


def main(settings: argparse.Namespace) -> None:
    """Record the starts and write them."""
    from world_model.data.doom.task_starts import record_task_starts  # needs ViZDoom, unlike the help
    from wp2env.game_starts import bank_of

    if not settings.out.parent.is_dir():
        raise ValueError(f"the folder {settings.out.parent} does not exist; make it, or give another --out")
    if settings.out.is_dir():
        raise ValueError(f"{settings.out} is a folder; give --out the name of a file")
    numbers = {name: getattr(settings, name) for name in ("split", "seed", "frames", "size")}
    starts = record_task_starts(settings.task, settings.count, **numbers)
    bank = bank_of(list(tqdm(starts, total=settings.count, unit="start", desc="recording starts", disable=None)))
    bank.save(settings.out)
    print(f"wrote {len(bank)} starts of {settings.task!r} ({settings.split}) to {settings.out}")
