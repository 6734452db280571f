"""What do few network evaluations cost, and which way from one to the next is better?

A distilled world makes a chunk with as many evaluations as it has blocks, or with a divisor of them, by two samplers
(`world_model.sampling`); the teacher-forced model that it was distilled from makes Euler steps, as many, or many. All
begin with the same true frames of levels that no training saw and get the same controls and the same noise:

  PSNR              after 1, 2, 4, 8 and 16 frames, against the true game;
  motion, contrast  over the last frames of the rollout, generated over true: 1 is like the game (`benchmarks.looks`);
  speed             latents per second over those of the world's own number of evaluations, measured in turn in one run.

Beside them stand the last true frame, repeated (floor), and the true frames through the codec (ceiling). Intervals are
95 % bootstrap intervals over levels, of speeds over rounds. With one evaluation both samplers are the same.

examples:
  python -m benchmarks.few_step --world runs/doom/few_step/world --quick
  python -m benchmarks.few_step --world runs/doom/stable_forcing/world --teacher runs/doom/autoregressive/world
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import fidelity, report
from benchmarks.controls import ratio
from benchmarks.fidelity import CEILING, FLOOR, Case, Sampling
from benchmarks.looks import looks
from benchmarks.walk import begin, walk
from world_model.checkpoint import load_world
from world_model.sampling import Sampler, block_euler, renoised
from world_model.world import World

QUICK_STARTS, QUICK_HORIZON, QUICK_ROUNDS = 16, 32, 3
MANY = 32  # evaluations of the teacher's that count as many
PSNR_AFTER = (1, 2, 4, 8, 16)  # frames
END = 16  # frames at the end of a rollout whose looks are compared
LOOKS = ("motion", "contrast")
BLOCK_STEPS = 5  # timed at once
SPEED, RELATIVE = "latents per second", "relative speed"


@dataclass(frozen=True)
class Contestant:
    """One way to make a chunk."""

    name: str
    world: World
    evaluations: int
    sampler: Sampler = block_euler


@dataclass(frozen=True)
class Seen:
    """What one contestant made, against the true game."""

    psnr: np.ndarray  # [cases, horizon]
    looks: dict[str, np.ndarray]  # by measure: [cases, 2], over the last frames, generated and true


def student_name(evaluations: int) -> str:
    """Of a distilled world by `block_euler`."""
    return f"student, {evaluations}"


def teacher_name(evaluations: int) -> str:
    """Of the teacher-forced model."""
    return f"teacher, {evaluations}"


def contestants(student: World, teacher: World | None, many: int) -> list[Contestant]:
    """All that are compared; the student's own number of evaluations comes first.

    Raises:
        ValueError: when the student was not distilled or the teacher makes other chunks.
    """
    blocks = len(student.config.flow.blocks)
    if not blocks:
        raise ValueError(f"the world {student.name!r} was not distilled; give a --world of the few_step stage or later")
    counts = [n for n in range(blocks, 0, -1) if blocks % n == 0]
    found = [Contestant(student_name(n), student, n) for n in counts]
    found += [Contestant(f"{student_name(n)}, renoised", student, n, renoised) for n in counts if n > 1]
    if teacher is None:
        return found
    for what in ("chunk_latents", "video"):
        theirs, ours = getattr(teacher.config, what), getattr(student.config, what)
        if theirs != ours:
            raise ValueError(f"the teacher's {what} is {theirs} and the world's {ours}; give the --teacher of this one")
    teacher = teacher.with_blocks(()).with_memory(student.config.memory)  # so that they differ in nothing else
    return found + [Contestant(teacher_name(n), teacher, n) for n in sorted({*counts, many})]


def see(frames: torch.Tensor, true: torch.Tensor, context: int) -> Seen:
    """Compare frames ``[cases, horizon, H, W, 3]`` with ``true [cases, context + horizon, H, W, 3]``."""
    before, ahead = true[:, context - 1 : context], true[:, context:]
    last = [torch.cat([before, video], dim=1)[:, -END - 1 :] for video in (frames, ahead)]
    both = [looks(video[:, 1:], video[:, 0]) for video in last]
    ends = {name: torch.stack([seen[name].mean(1) for seen in both], dim=1).numpy() for name in LOOKS}
    return Seen(torch.stack([report.psnr(*pair) for pair in zip(frames, ahead, strict=True)]).numpy(), ends)


def compare(entrants: Sequence[Contestant], cases: Sequence[Case], settings: argparse.Namespace) -> dict[str, Seen]:
    """What every contestant made of the cases, and what stands beside."""
    context, true = settings.context, fidelity.true_frames(cases)
    rows = fidelity.true_rows(cases)
    seen = {}
    for entrant in tqdm(entrants, desc="contestants"):
        sampling = Sampling(settings.seed, entrant.evaluations, settings.batch, entrant.sampler)
        seen[entrant.name] = see(fidelity.play(entrant.world, cases, rows, context, sampling), true, context)
    seen[CEILING] = see(fidelity.reconstruct(entrants[0].world, true, context), true, context)
    seen[FLOOR] = see(true[:, context - 1 : context].expand_as(true[:, context:]), true, context)
    return seen


def time_all(entrants: Sequence[Contestant], slots: int, rounds: int, seed: int) -> np.ndarray:
    """Latents per second ``[rounds, entrants]``, all slots together; every round takes the entrants in turn."""
    rng = np.random.default_rng(seed)
    streams = [begin(e.world, slots, seed, e.evaluations, e.sampler) for e in entrants]
    for stream in streams:
        walk(stream, 1, rng)
    speeds = np.empty((rounds, len(streams)))
    for row in speeds:
        for index, stream in enumerate(streams):
            began = time.perf_counter()
            walk(stream, BLOCK_STEPS, rng)
            row[index] = BLOCK_STEPS * slots * stream.latents_per_chunk / (time.perf_counter() - began)
    return speeds


def summarise(
    seen: dict[str, Seen], entrants: Sequence[Contestant], speeds: np.ndarray, levels: Sequence[str], seed: int
) -> dict[str, dict[str, report.Interval]]:
    """The table's rows; what stands beside has no speed."""
    horizon = next(iter(seen.values())).psnr.shape[1]
    rows: dict[str, dict[str, report.Interval]] = {}
    for name, of in seen.items():
        rows[name] = {
            psnr_after(h): report.bootstrap(of.psnr[:, h - 1], seed, levels) for h in PSNR_AFTER if h <= horizon
        }
        rows[name] |= {look: report.bootstrap(values, seed, levels, ratio) for look, values in of.looks.items()}
    for index, entrant in enumerate(entrants):
        measured = {SPEED: speeds[:, index], RELATIVE: speeds[:, index] / speeds[:, 0]}
        rows[entrant.name] |= {
            name: report.bootstrap(values, seed, statistic=np.median) for name, values in measured.items()
        }
    return rows


def differences(
    seen: dict[str, Seen], entrants: Sequence[Contestant], levels: Sequence[str], seed: int
) -> dict[str, dict[str, report.Interval]]:
    """By how many dB the student's own number of evaluations is better than each other contestant, case by case."""
    own = entrants[0].name
    return {
        f"{own} - ({entrant.name})": {
            psnr_after(h): report.bootstrap((seen[own].psnr - seen[entrant.name].psnr)[:, h - 1], seed, levels)
            for h in PSNR_AFTER
            if h <= seen[own].psnr.shape[1]
        }
        for entrant in entrants[1:]
    }


def psnr_after(frames: int) -> str:
    """The column of PSNR after so many frames."""
    return f"PSNR after {frames} (dB)"


def table(rows: dict[str, dict[str, report.Interval]], corner: str) -> str:
    """One line per row; what has no such value gets a dash."""
    columns = list(next(iter(rows.values())))
    cells = [[name, *(line[c].text(2) if c in line else "-" for c in columns)] for name, line in rows.items()]
    return report.markdown_table([corner, *columns], cells)


def check(settings: argparse.Namespace, student: World) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    for name in ("many", "rounds", "slots"):
        if getattr(settings, name) < 1:
            raise ValueError(f"--{name} is {getattr(settings, name)}; give at least 1")
    fidelity.check(settings, student)


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    if settings.quick:
        settings.starts, settings.horizon = min(settings.starts, QUICK_STARTS), min(settings.horizon, QUICK_HORIZON)
        settings.rounds = min(settings.rounds, QUICK_ROUNDS)
    student = load_world(settings.world)
    check(settings, student)
    entrants = contestants(student, load_world(settings.teacher) if settings.teacher else None, settings.many)
    frames = settings.context + settings.horizon
    store = fidelity.load_clips(settings.data, settings.starts, frames, student.config.video.height, settings.seed)
    cases = fidelity.choose_cases(store, settings.starts, frames)
    levels, seed = [case.level for case in cases], settings.seed
    seen = compare(entrants, cases, settings)
    rows = summarise(seen, entrants, time_all(entrants, settings.slots, settings.rounds, seed), levels, seed)
    better = differences(seen, entrants, levels, seed)

    print(f"\n{len(cases)} starts in {len(set(levels))} held-out levels, {settings.context} true frames before each,")
    print(f"{settings.horizon} generated; world {student.name!r}, seed {seed}; value and 95 % interval over levels;")
    print(f"speed with {settings.slots} slots\n")
    print(table(rows, "evaluations per chunk"), end="\n\nPaired differences:\n\n")
    print(table(better, "difference"), end="\n\n")
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(settings.json, settings, {"measures": rows, "differences": better})
    if settings.plot:
        report.plot(settings.plot, panels(seen, levels, seed), "generated frames")


def panels(seen: dict[str, Seen], levels: Sequence[str], seed: int) -> dict[str, list[report.Curve]]:
    """PSNR over the frames."""
    horizon = next(iter(seen.values())).psnr.shape[1]
    shown = [h for h in (2**k for k in range(32)) if h <= horizon]
    curves = [
        report.Curve(name, shown, [report.bootstrap(of.psnr[:, h - 1], seed, levels) for h in shown])
        for name, of in seen.items()
    ]
    return {"PSNR (dB)": curves}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--teacher", help="the teacher-forced model's world (default: only the student)")
    parser.add_argument("--many", type=int, default=MANY, help="evaluations of the teacher (default: %(default)s)")
    report.add_start_options(parser, starts=64, horizon=64)
    parser.add_argument("--context", type=int, default=8, help="true frames before them (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=4, help="whose speed is measured (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="of timing (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
