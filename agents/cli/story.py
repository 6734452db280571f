"""``wp2 story``: an agent learns in a generated world and shows before and after what it can do in the true game."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from agents.places import quickest_dtype
from agents.story.findings import Story, table
from world_model.checkpoint import DTYPES
from wp2env.cli.arguments import MAX_SEED, whole
from wp2env.cli.main import INTERRUPTED

MAX_STEPS, MAX_EPISODES, MAX_MINUTES, MAX_THREADS = 10**9, 10_000, 10**6, 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 story``."""
    usual = Story()
    parser.add_argument("--out", type=Path, required=True, help="folder of the story")
    parser.add_argument("--world", default=usual.world, help="a bundled world or a folder with one (%(default)s)")
    parser.add_argument(
        "--steps", type=whole(1, MAX_STEPS), default=usual.steps, help="that the agent learns from (%(default)s)"
    )
    parser.add_argument(
        "--episodes", type=whole(1, MAX_EPISODES), default=usual.episodes, help="to judge it by (%(default)s)"
    )
    parser.add_argument(
        "--minutes",
        type=whole(1, MAX_MINUTES),
        help="that all of it may take; training ends early where there is no time for all steps (default: no limit)",
    )
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=usual.seed, help="of all chance (%(default)s)")
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), help="that the world calculates in (default: the processor's quickest)"
    )
    parser.add_argument("--threads", type=whole(1, MAX_THREADS), default=2, help="of the networks (%(default)s)")


def main(settings: argparse.Namespace) -> int:
    """Tell the story, or what is missing of it, and say where it is; 130 after an interrupt."""
    from agents.story import telling  # needs Stable-Baselines3 and ViZDoom, unlike the help

    torch.set_num_threads(settings.threads)
    dtype = settings.dtype or quickest_dtype()
    story = Story(settings.world, settings.steps, settings.episodes, settings.seed, dtype, settings.minutes)
    out = settings.out
    told = telling.is_told(out)
    findings = telling.tell(story, out)
    if findings is None:
        print("wp2 story: interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    if told:
        print(f"this story is told already; `--out` another folder for another one\n\n{table(findings)}\n")
    else:
        steps = f"{findings.steps} of {story.steps}" if findings.ended_early else findings.steps
        print(f"\n{steps} steps in the generated world, {story.episodes} test starts\n\n{table(findings)}\n")
    print(f"open {out / telling.PAGE}; the video is {out / telling.FILM}, the numbers are in {out / telling.REPORT}")
    return 0
