"""``wp2 record world``: episodes of a policy in a generated world, or in the true game, as a dataset."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agents.places import EPISODE_STEPS, PLACES, WORLD
from agents.record import FORMATS, LOCAL
from wp2env.cli.arguments import MAX_SEED, whole

if TYPE_CHECKING:
    from agents.record.plan import Plan

MOST = 10**7  # episodes
NO_LICENCE = "as the world's own, see its card"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``record world``."""
    parser.add_argument("--out", type=Path, required=True, help="folder of the dataset; named NAME-v0 for minari")
    parser.add_argument("--policy", default="random", help="name, or path of a trained policy (default: %(default)s)")
    parser.add_argument("--episodes", type=whole(1, MOST), required=True, help="number of episodes")
    parser.add_argument(
        "--envs", type=whole(1, 1024), default=8, help="slots of a batch; other numbers round differently (%(default)s)"
    )
    parser.add_argument(
        "--steps", type=whole(1, 10**5), default=EPISODE_STEPS, help="steps of an episode (default: %(default)s)"
    )
    parser.add_argument("--task", default="explore", help="where rewards and ends come from (default: %(default)s)")
    parser.add_argument("--starts", help="file with starts, taken in turn (default: the world's own)")
    parser.add_argument("--format", choices=FORMATS, default="clips", help="of the dataset (%(default)s)")
    parser.add_argument("--in", dest="place", choices=PLACES, default=WORLD, help="where (default: %(default)s)")
    parser.add_argument("--world", default="doom", help="a bundled world or a folder with one (default: %(default)s)")
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="the same seed gives the same episodes")
    parser.add_argument("--sampling-steps", type=whole(1, 1000), help="network evaluations per step (the world's own)")
    parser.add_argument("--temperature", type=float, default=1.0, help="scale of the world's noise (%(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--licence", default=NO_LICENCE, help="of the episodes, as the dataset tells it")
    parser.add_argument(
        "--ray",
        nargs="?",
        const=LOCAL,
        metavar="ADDRESS",
        help="play in several processes: on this machine, or on the Ray cluster at an address (auto or host:port)",
    )
    parser.add_argument("--workers", type=whole(1, 1024), help="of --ray, one core each (default: 2)")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def plan(settings: argparse.Namespace) -> Plan:
    """What to play."""
    from agents.record.plan import Plan

    return Plan(
        policy=settings.policy,
        world=settings.world if settings.place == WORLD else None,
        task=settings.task,
        starts=settings.starts,
        envs=settings.envs,
        steps=settings.steps,
        seed=settings.seed,
        sampling_steps=settings.sampling_steps,
        temperature=settings.temperature,
        device=settings.device,
    )


def main(settings: argparse.Namespace) -> None:
    """Record, and say what there is."""
    from agents.record.crew import Crew
    from agents.record.play import Player
    from agents.record.recording import Broken, record

    if settings.workers is not None and settings.ray is None:
        raise ValueError(f"{settings.workers} workers need Ray; add --ray, or leave --workers out")
    hire = Player if settings.ray is None else partial(Crew, workers=settings.workers or 2, address=settings.ray)
    try:
        record(
            plan(settings),
            settings.out,
            episodes=settings.episodes,
            form=settings.format,
            licence=settings.licence,
            hire=hire,
            progress=not settings.no_progress,
        )
    except Broken as end:
        raise SystemExit(str(end)) from end
    except KeyboardInterrupt as end:
        raise SystemExit(str(end) or "interrupted; the same command goes on from there") from end
    print(f"{settings.episodes} episodes in {settings.out}")
