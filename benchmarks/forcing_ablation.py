"""What is each part of Stable Forcing worth?

The ablation of the WorldPlay2 paper's Table 8. Four worlds are distilled from one autoregressive student and one
bidirectional teacher, with the same recordings, seeds and budgets:

  full                  few-step initialisation, then Stable Forcing                                        (paper 83.1)
  full-context teacher  the same start; scores see the whole past instead of compressed memory              (paper 82.3)
  no initialisation     Stable Forcing from the student itself, as an Euler solver of as few steps          (paper 75.2)
  neither               and rollouts whose chunks end at a random evaluation, as in Self Forcing            (paper 73.9)

The arms without initialisation are not given its budget for anything else. References are the few-step stage alone,
the student with as few and with many Euler steps, the last true frame repeated (floor), the codec, and the true game
(ceiling). All begin with the same true frames of levels that no training saw. The figure that ranks them is the

  drift distance   the mean of |log| of contrast, motion and sharpness in the last segment of a long rollout over those
                   of other recordings of the same level; 0 is the game, log 2 = 0.69 is off by a factor of two; lower
                   is better. The true game has one, too, since recordings of a level differ.

It says nothing about control, so beside it stand PSNR after 1, 8 and 16 frames against the true game, the response to
actions (PSNR under the true controls less that under another recording's, mean over those frames, in dB) and the
Frechet distance of `benchmarks.drift`. Intervals are 95 % bootstrap intervals over levels and seeds (the Frechet
distance pools the seeds; its interval is over levels); the student's rows are of the first seed. A world that collapsed
in training is taken at its best, which the command says.

examples:
  python -m benchmarks.forcing_ablation --quick
  python -m benchmarks.forcing_ablation --student runs/ar --teacher runs/history --data data/train \\
      --few-step-minutes 20 --minutes 40 --seeds 0 1 2 --json results/forcing_ablation.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks import drift, fidelity, report
from benchmarks.captions import check_levels, training_data
from benchmarks.drift import CODEC, CONTEXT, DISTANCE, FLOOR, TRUE, Seen
from benchmarks.forcing_arms import ARMS, FEW_STEP, Training, quick_worlds, train_arm
from benchmarks.forcing_scores import DRIFT, DRIFTING, NEAR, PSNR, RESPONSE, Outcome, Trial, beside, build, perform
from benchmarks.frechet import frechet_interval
from world_model.data.joined import JoinedStore
from world_model.training.checkpointing import progress_of
from world_model.training.loop import Budget
from world_model.training.run import find_present_world
from world_model.world import World

FEW_STEP_MINUTES, MINUTES, CLIPS = 20.0, 45.0, 2000  # of training of each stage; of a recording that is made
QUICK_MINUTES, QUICK_CLIPS, QUICK_STARTS, QUICK_HORIZON, QUICK_LEVELS = 0.12, 48, 8, 100, 24
MANY = 32  # Euler steps of the student that count as many
PSNR_AFTER = (1, 8, NEAR)  # frames
Contestant = tuple[str, int | None, int]  # a world or run, its evaluations per chunk (None: its own), and the seed


@dataclass(frozen=True)
class Column:
    """One column of the table: a measure at one place."""

    measure: str
    place: int = -1
    decimals: int = 2
    ratio: bool = False  # whether the measure is a logarithm that is shown as what it is of


COLUMNS = {
    DRIFT: Column(DRIFT, decimals=3),
    **{f"PSNR after {after} (dB)": Column(PSNR, after - 1) for after in PSNR_AFTER},
    RESPONSE: Column(RESPONSE),
    **{f"{name}, x true": Column(name, ratio=True) for name in DRIFTING},
}


def stacked(outcomes: Sequence[Outcome], measure: str) -> np.ndarray:
    """One measure over seeds: ``[seeds, starts, places]``."""
    return np.stack([outcome[measure] for outcome in outcomes])


def row(outcomes: Sequence[Outcome], ends: Sequence[Seen], trial: Trial, seed: int) -> dict[str, report.Interval]:
    """The table's cells of one contestant, from what it did with every seed."""
    cells = {}
    for name, column in COLUMNS.items():
        if column.measure in outcomes[0]:
            value = report.crossed_bootstrap(stacked(outcomes, column.measure)[..., column.place], seed)
            logs = value.mean, value.low, value.high
            cells[name] = report.Interval(*np.exp(logs).tolist(), value.count) if column.ratio else value
    seen = [np.concatenate(of_level) for of_level in zip(*(end.features for end in ends), strict=True)]
    return cells | {DISTANCE: frechet_interval(seen, trial.reference, seed)}


def steps_down(outcomes: dict[str, list[Outcome]], seed: int) -> dict[str, dict[str, report.Interval]]:
    """Paired differences of neighbours in the paper's order: the one that should be better less the other."""
    compared = {name: column for name, column in COLUMNS.items() if not column.ratio}
    return {
        f"{better} - {worse}": {
            name: report.crossed_bootstrap(
                (stacked(outcomes[better], c.measure) - stacked(outcomes[worse], c.measure))[..., c.place], seed
            )
            for name, c in compared.items()
        }
        for better, worse in pairwise(ARMS)
    }


def verdict(differences: dict[str, dict[str, report.Interval]]) -> list[str]:
    """A line for each step of the paper's order, by the drift distance, and one for the order as a whole."""
    lines, held, certain = [], 0, 0
    for pair, (better, worse) in zip(differences, pairwise(ARMS), strict=True):
        value = differences[pair][DRIFT]
        holds, beyond = value.mean <= 0, value.high < 0 or value.low > 0
        held, certain = held + holds, certain + (holds and beyond)
        which = "is closer to the game than" if holds else "is further from the game than"
        lines.append(f"{better} {which} {worse}, {'beyond' if beyond else 'within'} the interval: {value.text(3)}")
    total = len(lines)
    if certain == total:
        lines.append("the paper's order holds, every step beyond its interval")
    elif held == total:
        lines.append(f"the paper's order holds, {certain} of {total} steps beyond their intervals")
    else:
        lines.append(f"the paper's order does not hold: {held} of {total} steps go its way, {certain} beyond theirs")
    return lines


def table(rows: dict[str, dict[str, report.Interval]], corner: str) -> str:
    """One line per row; what has no such value gets a dash."""
    columns = [name for name in [*COLUMNS, DISTANCE] if any(name in line for line in rows.values())]
    decimals = {name: column.decimals for name, column in COLUMNS.items()}
    cells = [
        [name, *(line[c].text(decimals.get(c, 2)) if c in line else "-" for c in columns)]
        for name, line in rows.items()
    ]
    return report.markdown_table([corner, *columns], cells)


def panels(outcomes: dict[str, list[Outcome]], trial: Trial, seed: int) -> dict[str, list[report.Curve]]:
    """Drift over the segments, PSNR over the first frames."""
    ends = [end for _, end in trial.parts]
    near = [2**k for k in range(NEAR.bit_length()) if 2**k <= NEAR]

    def curve(name: str, measure: str, positions: list[int], places: list[int]) -> report.Curve:
        values = stacked(outcomes[name], measure)
        return report.Curve(name, positions, [report.crossed_bootstrap(values[..., place], seed) for place in places])

    return {
        # What stands beside has one segment, the same for ever.
        DRIFT: [
            curve(name, DRIFT, ends, list(range(len(ends))) if of[0][DRIFT].shape[1] > 1 else [0] * len(ends))
            for name, of in outcomes.items()
        ],
        PSNR: [curve(name, PSNR, near, [h - 1 for h in near]) for name, of in outcomes.items() if PSNR in of[0]],
    }


def settle(settings: argparse.Namespace) -> None:
    """Fill in what was left open, and make a quick run small and a run of its own.

    Raises:
        ValueError: for numbers that cannot work, and for a student without a teacher, naming the option.
    """
    if settings.clips is not None and settings.clips < 1:
        raise ValueError(f"--clips is {settings.clips}; give at least 1")
    if len(set(settings.seeds)) < len(settings.seeds):
        raise ValueError(f"--seeds are {settings.seeds}; give each of them once")
    if settings.quick:
        settings.starts, settings.horizon = min(settings.starts, QUICK_STARTS), min(settings.horizon, QUICK_HORIZON)
        settings.clips, settings.levels, settings.out = QUICK_CLIPS, QUICK_LEVELS, settings.out / "quick"
        settings.minutes = settings.few_step_minutes = QUICK_MINUTES
        settings.steps = settings.few_step_steps = settings.student = settings.teacher = None
        return
    if settings.student is None or settings.teacher is None:
        raise ValueError(
            "the ablation distils worlds that are given; give --student (a world or run of the autoregressive stage) "
            "and --teacher (of the history stage), or --quick, which trains tiny ones of its own"
        )
    if settings.steps is None and settings.minutes is None:
        settings.minutes = MINUTES
    if settings.few_step_steps is None and settings.few_step_minutes is None:
        settings.few_step_minutes = FEW_STEP_MINUTES
    if settings.clips is None and not settings.data:
        settings.clips = CLIPS


def check(settings: argparse.Namespace, world: World) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    if settings.many < 1:
        raise ValueError(f"--many is {settings.many}; give at least 1")
    drift.check(settings, world)


def contestants(settings: argparse.Namespace, training: Training, few: int) -> dict[str, list[Contestant]]:
    """Worlds by name, one for every seed."""
    found = {
        name: [(str(training.run_folder(name, seed)), None, seed) for seed in settings.seeds]
        for name in [*ARMS, FEW_STEP]
    }
    first = settings.seeds[0]
    return found | {f"student, {n} Euler steps": [(training.student, n, first)] for n in (few, settings.many)}


def main(settings: argparse.Namespace) -> None:
    """Train all arms, measure them, and print the tables."""
    began = time.monotonic()
    settle(settings)
    few_step = Budget(settings.few_step_steps, settings.few_step_minutes)
    forcing = Budget(settings.steps, settings.minutes)
    world = World.random("tiny") if settings.quick else find_present_world(settings.student)
    check(settings, world)
    size = world.config.video.height
    held_out = fidelity.load_clips(settings.test, settings.levels, drift.TRUE_FRAMES, size, settings.seed)
    starts = drift.choose_starts(held_out, settings.starts, settings.horizon, np.random.default_rng(settings.seed))
    data = training_data(settings, size)
    for store in JoinedStore(data).stores:
        check_levels(store)
    if settings.quick:
        settings.student, settings.teacher = quick_worlds(data, settings.out, settings.seed)
    training = Training(settings.student, settings.teacher, data, settings.clips, few_step, forcing, settings.out)
    trained = {f"{name}, seed {seed}": train_arm(name, training, seed) for seed in settings.seeds for name in ARMS} | {
        f"{FEW_STEP}, seed {seed}": progress_of(training.run_folder(FEW_STEP, seed)) for seed in settings.seeds
    }

    world = find_present_world(settings.student)
    trial = build(world, starts, settings.horizon, settings.batch)
    blocks = len(world.config.curriculum.few_step.blocks)
    results = {}
    for name, entrants in contestants(settings, training, blocks).items():
        print(f"measuring {name}")
        results[name] = [perform(find_present_world(of), trial, seed, steps) for of, steps, seed in entrants]
    rivals = beside(world, trial)
    results |= {name: [rivals[name]] for name in (FLOOR, CODEC, TRUE)}  # that without PSNR last: panels share colours
    outcomes = {name: [outcome for outcome, _ in of] for name, of in results.items()}
    rows = {name: row(outcomes[name], [end for _, end in of], trial, settings.seed) for name, of in results.items()}
    differences = steps_down(outcomes, settings.seed)

    begin, end = trial.parts[-1]
    print(f"\n{len(starts)} starts in as many held-out levels, {CONTEXT} true frames before each,")
    print(f"student {world.name!r}, training seeds {settings.seeds}, drift in frames {begin + 1}-{end};")
    print("value and 95 % interval over levels and seeds")
    for name, progress in trained.items():
        ending = f"; stopped, its best world counts: {progress.collapsed}" if progress.collapsed else ""
        print(f"{name}: {progress.step} steps in {progress.minutes:.1f} minutes{ending}")
    if settings.quick:
        print("this quick training shows that the machinery works; its worlds are far from having learned the game")
    print("\n" + table(rows, "arm"), end="\n\nPaired differences (drift distance: below 0 as in the paper):\n\n")
    print(table(differences, "difference"), end="\n\n")
    lines = verdict(differences)
    print("\n".join(lines), f"{time.monotonic() - began:.0f} s in all", sep="\n")
    if settings.json:
        counts = {name: vars(progress) for name, progress in trained.items()}
        content = {"training": counts, "measures": rows, "differences": differences, "verdict": lines}
        report.write_json(settings.json, settings, content)
    if settings.plot:
        report.plot(settings.plot, panels(outcomes, trial, settings.seed), "generated frames")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.worldless_command_line(__doc__)
    parser.add_argument("--student", help="world or run of the autoregressive stage")
    parser.add_argument("--teacher", help="world or run of the history stage")
    parser.add_argument("--data", type=Path, nargs="+", help="recordings to train on (default: record one)")
    parser.add_argument("--clips", type=int, help="only the first so many clips of each, or how many to record")
    budget = "of training on rollouts, of each arm and seed"
    parser.add_argument("--minutes", type=float, help=f"{budget} (default, without --steps: {MINUTES})")
    parser.add_argument("--steps", type=int, help=budget)
    budget = "of few-step initialisation, once for each seed"
    parser.add_argument("--few-step-minutes", type=float, help=f"{budget} (default: {FEW_STEP_MINUTES})")
    parser.add_argument("--few-step-steps", type=int, help=budget)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of training and rollouts (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/forcing-ablation"), help="folder of the runs (default: %(default)s)"
    )
    parser.add_argument("--test", type=Path, help="a clip store of held-out levels (default: record one)")
    parser.add_argument("--levels", type=int, default=drift.LEVELS, help="to record for it (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=32, help="starts in held-out levels (default: %(default)s)")
    parser.add_argument("--horizon", type=int, default=400, help="frames to generate (default: %(default)s)")
    parser.add_argument("--many", type=int, default=MANY, help="Euler steps that count as many (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="rollouts side by side (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
