"""What an iteration of Stable Forcing costs as rollouts grow: scores with compressed memory against full context.

*Clip-wise* scores see a clip and compressed memory of what came before it, *full context* every latent before it at
full resolution (the paper: 167 s against 261 s at 96 latents, and out of memory at 320). Both have the same weights and
are timed in turn, each in a process of its own; latents are random, since costs do not depend on them. An iteration is
one that updates the student, in bf16, without a look at whether the student collapses.

  tokens      of the longest sequence that a score sees, for one rollout
  seconds     of an iteration: 1 the rollout without gradients, 2 the scores of its clips, 3 the replay chunk by chunk,
              4 the fake score's own step; the rest is clipping and optimisers
  held        the most that autograd holds for backward passes at one time, in the iteration and in its replay, without
              weights; on a CPU this counts the attention weights, which a GPU's fused kernel computes again instead
  resident    how much the process grew from its first iteration on, the optimisers' state included
  peak        on a GPU, the most that was allocated during the iteration

What would grow by more than --limit-gb is not run: on a CPU that is predicted, on a GPU it is what a process may
allocate. Each process first runs a rollout of one clip to warm up. Intervals are 95 % bootstrap intervals over
iterations; those of ratios pair the iterations that ran one after the other. --quick runs one iteration of each, and no
rollout of more than 160 latents.

examples:
  python -m benchmarks.forcing_cost --quick
  python -m benchmarks.forcing_cost --rollouts 32 96 320 --json results/forcing.json --plot results/forcing.png
  python -m benchmarks.forcing_cost --preset doom-gpu --device cuda --batch 4 --limit-gb 60
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import report
from benchmarks.forcing import CLIPWISE, FULL, GIB, PARTS, REPLAY, SCORED, STAGES, Apart, Cost, Forcing, Prospect
from benchmarks.iteration import MIB
from world_model.checkpoint import check_device
from world_model.config import PRESETS, WorldConfig

ROLLOUTS, CLIP = (32, 96, 320), 32  # latents
QUICK_LONGEST = 160
ROUNDS, QUICK_ROUNDS = 3, 1
FEW, MANY = 4, 40  # chunks whose replay is compared
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Line:
    """One kind of scores with one length of rollout."""

    scores: str
    rollout: int  # latents
    prospect: Prospect
    costs: list[Cost]  # of each iteration that counts; empty when there was not enough memory

    def interval(self, what: str, seed: int) -> report.Interval:
        """The median of an iteration's ``seconds`` or ``processor``."""
        return report.bootstrap([cost.total(what) for cost in self.costs], seed, statistic=np.median)

    def summary(self, seed: int) -> dict[str, object]:
        """Everything of it as plain data, with its intervals."""
        times = {what: self.interval(what, seed) for what in ("seconds", "processor")} if self.costs else {}
        return asdict(self) | times

    def part(self, part: str) -> float:
        """Seconds, the median."""
        return float(np.median([cost.laps[part].seconds for cost in self.costs]))


def process(config: WorldConfig, scores: str, rollout: int, clip: int, settings: argparse.Namespace) -> Apart:
    """A process for one cell of the table."""
    make = partial(Forcing, config, scores, rollout, clip, settings.batch, settings.device, settings.seed)
    return Apart(make, torch.get_num_threads(), settings.limit_gb)


def measure(config: WorldConfig, rollout: int, settings: argparse.Namespace, bar: tqdm) -> list[Line]:
    """Iterations with both kinds of scores in turn; the first of each warms up."""
    costs: dict[str, list[Cost]] = {name: [] for name in STAGES}
    with ExitStack() as stack:
        sides = {name: stack.enter_context(process(config, name, rollout, settings.clip, settings)) for name in STAGES}
        prospects = {name: side.prospect() for name, side in sides.items()}
        running = [name for name in sides if prospects[name].growth <= settings.limit_gb * GIB]
        for turn in range(1 + settings.rounds):
            for name in list(running):
                cost = sides[name].iterate(warming=turn == 0)
                bar.update()
                if cost is None:
                    running.remove(name)
                elif turn:
                    costs[name].append(cost)
    return [Line(name, rollout, prospects[name], costs[name] if name in running else []) for name in STAGES]


def replay_held(config: WorldConfig, settings: argparse.Namespace) -> dict[int, int]:
    """Bytes that the replay of so many chunks holds."""
    held = {}
    for chunks in (FEW, MANY):
        with process(config, CLIPWISE, chunks * config.chunk_latents, FEW * config.chunk_latents, settings) as side:
            cost = side.iterate()
            held[chunks] = cost.laps[REPLAY].held if cost else 0
    return held


def ratios(lines: Sequence[Line], seed: int) -> dict[int, dict[str, report.Interval]]:
    """How many times as long full context takes, in all and for the scores, for each length at which both ran."""
    of = {(line.scores, line.rollout): line.costs for line in lines}
    found = {}
    for rollout in dict.fromkeys(line.rollout for line in lines):
        pairs = list(zip(of[CLIPWISE, rollout], of[FULL, rollout], strict=False))
        if pairs:
            found[rollout] = {
                name: report.bootstrap(
                    [b.total(what, parts) / a.total(what, parts) for a, b in pairs], seed, statistic=np.median
                )
                for name, what, parts in (
                    ("seconds", "seconds", PARTS),
                    ("processor", "processor", PARTS),
                    ("scores", "seconds", SCORED),
                )
            }
    return found


def table(lines: Sequence[Line], seed: int) -> str:
    """A row for each line; what did not fit into memory has its tokens and nothing else."""
    header = ["scores", "latents", "tokens", "seconds", *PARTS[:-1], "processor"]
    header += ["held (MiB)", "replay held (MiB)", "resident (MiB)", "peak (MiB)"]
    rows = []
    for line in lines:
        row = [line.scores, line.rollout, line.prospect.tokens]
        if not line.costs:
            rows.append([*row, OUT_OF_MEMORY, *["-"] * (len(header) - len(row) - 1)])
            continue
        last = line.costs[-1]
        row += [line.interval("seconds", seed).text(2), *(f"{line.part(part):.2f}" for part in PARTS[:-1])]
        row += [line.interval("processor", seed).text(2)]
        sizes = last.most("held"), last.laps[REPLAY].held, last.grown, last.most("peak")
        rows.append([*row, *(f"{size / MIB:.1f}" if size else "-" for size in sizes)])
    return report.markdown_table(header, rows)


def sentences(found: dict[int, dict[str, report.Interval]], held: dict[int, int]) -> list[str]:
    """What the table says."""
    said = [
        f"{rollout} latents: full context takes {of['seconds'].text(2)} times as long "
        f"({of['processor'].text(2)} on the processor), its scores {of['scores'].text(2)} times"
        for rollout, of in found.items()
    ]
    few, many = (held[chunks] / MIB for chunks in (FEW, MANY))
    return [*said, f"the replay of {FEW} chunks holds {few:.1f} MiB, that of {MANY} chunks {many:.1f} MiB"]


def panels(lines: Sequence[Line], seed: int) -> dict[str, list[report.Curve]]:
    """Time and memory over the length of the rollout, one curve for each kind of scores."""
    ran = {(line.scores, line.rollout): line for line in lines if line.costs}
    memories = {
        "held for the backward pass (MiB)": {key: line.costs[-1].most("held") for key, line in ran.items()},
        "resident growth (MiB)": {key: line.costs[-1].grown for key, line in ran.items()},
    }
    curves = {"seconds an iteration": {key: line.interval("seconds", seed) for key, line in ran.items()}}
    curves |= {
        label: {key: report.Interval(*3 * [size / MIB], count=1) for key, size in sizes.items()}
        for label, sizes in memories.items()
    }
    return {label: report.curves(intervals) for label, intervals in curves.items()}


def check(settings: argparse.Namespace, config: WorldConfig) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    report.require_positive(settings, "rollouts", "clip", "batch", "rounds")
    check_device(settings.device)
    if not settings.limit_gb > 0:
        raise ValueError(f"--limit-gb is {settings.limit_gb}; give a number above 0")
    if settings.clip % config.chunk_latents:
        raise ValueError(f"--clip is {settings.clip}; give a multiple of {config.chunk_latents}, a chunk's latents")
    for rollout in settings.rollouts:
        if rollout % settings.clip:
            raise ValueError(f"--rollouts has {rollout}; give multiples of {settings.clip}, the latents of a clip")


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    config = PRESETS[settings.preset]
    check(settings, config)
    if settings.quick:
        longest = max(settings.clip, QUICK_LONGEST // settings.clip * settings.clip)
        settings.rollouts = sorted({min(rollout, longest) for rollout in settings.rollouts})
        settings.rounds = min(settings.rounds, QUICK_ROUNDS)
    held = replay_held(config, settings)
    lines: list[Line] = []
    with tqdm(total=2 * (1 + settings.rounds) * len(settings.rollouts), desc="forcing", unit="iteration") as bar:
        for rollout in settings.rollouts:
            lines += measure(config, rollout, settings, bar)
    found = ratios(lines, settings.seed)

    print(f"\npreset {config.name!r} with random weights, batch {settings.batch}, clips of {settings.clip} latents,")
    print(f"bf16, {settings.device}, {torch.get_num_threads()} threads; medians of {settings.rounds} iterations\n")
    print(table(lines, settings.seed), end="\n\n")
    print("\n".join(sentences(found, held)))
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if settings.json:
        results = {"lines": [line.summary(settings.seed) for line in lines], "ratios": found, "replay_held": held}
        report.write_json(settings.json, settings, results)
    if settings.plot:
        report.plot(settings.plot, panels(lines, settings.seed), "latents of a rollout")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="doom", help="whose sizes (default: %(default)s)")
    parser.add_argument("--rollouts", type=int, nargs="+", default=list(ROLLOUTS), help="lengths, in latents")
    parser.add_argument("--clip", type=int, default=CLIP, help="latents of a clip (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="rollouts per iteration (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="iterations that count (default: %(default)s)")
    parser.add_argument("--limit-gb", type=float, default=8.0, help="GiB, see above (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
