"""`wp2 train doom` and `wp2 export`: train a stage or the whole curriculum, and turn a run into a world."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from world_model.checkpoint import check_device
from world_model.config import PRESETS
from world_model.large.config import WORLDPLAY2_14B
from world_model.large.folder import expert_title
from world_model.training.curriculum import ORDER, budgets, run_curriculum
from world_model.training.export import export
from world_model.training.loop import Budget
from world_model.training.processes import joined
from world_model.training.run import StageRun, run_stage
from world_model.training.stages import STAGES

EXPERTS = WORLDPLAY2_14B.experts
Amounts = list[tuple[str | None, float]]  # a number of steps or minutes, and the stage that it is for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `wp2 train doom`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--stage", choices=STAGES, help="train one stage")
    what.add_argument("--curriculum", action="store_true", help=f"train all stages: {', '.join(ORDER)}")
    parser.add_argument("--data", required=True, type=Path, nargs="+", help="recordings, from `wp2 record doom`")
    parser.add_argument("--out", required=True, type=Path, help="run folder; run again with the same to continue")
    parser.add_argument(
        "--start", help="world, large ones too, or run to start from (default: random weights); its codec is kept"
    )
    parser.add_argument("--expert", choices=EXPERTS, help="which of a large world's two experts this stage trains")
    parser.add_argument("--teacher", help="run or world of a history stage, which scores rollouts (stable_forcing)")
    parser.add_argument("--first", choices=ORDER, help="where the curriculum begins (default: after a start's codec)")
    parser.add_argument("--preset", default="doom", choices=sorted(PRESETS), help="sizes, when there is no --start")
    parser.add_argument("--clips", type=int, help="use only the first so many clips of each recording")
    limit = "stop after so many {} in all sessions; STAGE=NUMBER ... with --curriculum"
    parser.add_argument("--minutes", type=_amount(float), nargs="+", default=[], help=limit.format("minutes"))
    parser.add_argument("--steps", type=_amount(int), nargs="+", default=[], help=limit.format("steps"))
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="STAGE.NAME=JSON", help="other settings, such as few_step.midpoint=true"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights")
    parser.add_argument("--device", help="cpu or cuda (default: the best there is)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")


def main(args: argparse.Namespace) -> None:
    """Train one stage or the curriculum; every stage's world is then in the folder ``world`` of its run."""
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.device:
        check_device(args.device)
    try:
        (_train_curriculum if args.curriculum else _train_stage)(args)
    except KeyboardInterrupt as stop:
        where = str(stop) or "interrupted"
        raise SystemExit(f"train doom: {where}; the same command goes on from here") from None


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `wp2 export`."""
    parser.add_argument("run", type=Path, help="run folder of `wp2 train`; its newest checkpoint is taken")
    parser.add_argument("out", type=Path, help="folder of the world to write")
    parser.add_argument("--steps", type=int, help="network evaluations per chunk from then on (default: as trained)")
    parser.add_argument("--fused", action="store_true", help="one head per network evaluation, for a smaller file")


def export_main(args: argparse.Namespace) -> None:
    """Save the averaged weights of a run's newest checkpoint as a world."""
    export(args.run, args.out, fused=args.fused, steps=args.steps)
    print(f"wrote {args.out}")


def _train_stage(args: argparse.Namespace) -> None:
    if args.first:
        raise ValueError(f"--first {args.first} is for --curriculum; leave it out with --stage {args.stage}")
    budget = Budget(_of_one_stage("--steps", args.steps), _of_one_stage("--minutes", args.minutes))
    progress = run_stage(_stage_run(args, args.stage), budget)
    here = joined(args.device)
    if here.is_main_process:
        export(args.out, args.out / "world")
    if progress.interrupted:
        raise KeyboardInterrupt(f"interrupted in {args.stage} at step {progress.step}")
    others = [f"its {expert_title(name)} as it was" for name in EXPERTS if args.expert not in (None, name)]
    here.print(", ".join([f"the world of this run is in {args.out / 'world'}", *others]))


def _train_curriculum(args: argparse.Namespace) -> None:
    if args.expert:
        raise ValueError(f"a curriculum trains one expert after the other; leave out --expert {args.expert}")
    first = args.first or (ORDER[1] if args.start else ORDER[0])
    limits = budgets(_of_many_stages("--steps", args.steps), _of_many_stages("--minutes", args.minutes))
    world = run_curriculum(_stage_run(args, first), limits)
    joined(args.device).print(f"the world of this curriculum is in {world}, the report in {args.out / 'report.md'}")


def _stage_run(args: argparse.Namespace, stage: str) -> StageRun:
    return StageRun(
        stage=stage,
        data=tuple(args.data),
        out=args.out,
        cache=args.out / "cache",
        start=args.start,
        expert=args.expert,
        teacher=args.teacher,
        preset=args.preset,
        seed=args.seed,
        settings=tuple(args.set),
        clips=args.clips,
        device=args.device,
    )


def _amount(number: type) -> Callable[[str], tuple[str | None, float]]:
    """The type of an option that takes ``NUMBER`` or ``STAGE=NUMBER``."""

    def read(text: str) -> tuple[str | None, float]:
        name, equals, value = text.rpartition("=")
        try:
            return (name if equals else None), number(value)
        except ValueError:
            kind = "a whole number" if number is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r:.40} does not fit; give {kind} or STAGE={kind}") from None

    return read


def _of_one_stage(option: str, amounts: Amounts) -> float | None:
    """The number of an option that is for one stage, None where it was not given."""
    if len(amounts) > 1 or any(name is not None for name, _ in amounts):
        raise ValueError(f"{option} takes one plain number with --stage; numbers for many stages are for --curriculum")
    return amounts[0][1] if amounts else None


def _of_many_stages(option: str, amounts: Amounts) -> dict[str, float]:
    """The numbers of an option by stage."""
    for name, value in amounts:
        if name not in ORDER:
            wrong = f"{value:g}" if name is None else f"{name}={value:g}"
            raise ValueError(
                f"{option} {wrong} names no stage of the curriculum; write STAGE={value:g} with {', '.join(ORDER)}"
            )
    return dict(amounts)
