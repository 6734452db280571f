"""Unbounded horizon at bounded cost: does step 100,000 take the time and the memory of step 1,000?

One stream walks at random for so many steps. Along the way: resident memory of the process, the size of a snapshot,
and the largest rotary age that attention was asked for, beside the world's limit. At the end a second stream is
restored to what the first one was at step 1,000, and blocks of steps of both are timed in turn, in the same minute of
the same process: their ratio is what the horizon costs. The early stream is the floor of every figure.

Intervals are 95 % bootstrap intervals over blocks. Targets: a ratio within 5 % of 1, memory that grows by under 1 %.

examples:
  python -m benchmarks.horizon --quick
  python -m benchmarks.horizon --preset tiny --json results/horizon.json --plot results/horizon.png
  python -m benchmarks.horizon --steps 20000 --threads 2
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import report
from benchmarks.walk import Flatness, begin, flatness, walk
from world_model.checkpoint import load_world
from world_model.config import PRESETS
from world_model.rollout import Snapshot, WorldStream
from world_model.transformer import rotary
from world_model.world import World

EARLY_STEP = 1000  # by then every buffer of the memory is full
STEPS, QUICK_STEPS = 100_000, 3000
SAMPLES = 10  # along the way, after the first one at `EARLY_STEP`
BLOCKS = 40  # of each stream
TIME_TARGET, MEMORY_TARGET = 5.0, 1.0  # percent
MIB = 2**20


def random_world(preset: str, seed: int) -> World:
    """A world with random weights, also where training begins at zero, so that its memory reaches its pictures."""
    world = World.random(preset, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in world.parameters():
            if not parameter.any():
                parameter.normal_(0, 1 / max(parameter.shape) ** 0.5, generator=generator)
    return world


class RotaryAges:
    """Notes the largest age, in latents, that a rotary table was asked for while it is open.

    It listens where positions become angles, so it sees what attention gets and not what a cache says it gives.
    """

    def __init__(self) -> None:
        self.largest = 0.0
        self._table: Callable = rotary.rotary_table

    def __enter__(self) -> RotaryAges:
        def listening(positions: torch.Tensor, head: int) -> torch.Tensor:
            self.largest = max(self.largest, -float(positions[..., 0].min()))
            return self._table(positions, head)

        modules = [module for name, module in sys.modules.items() if name.startswith("world_model.")]
        self._users = [module for module in modules if getattr(module, "rotary_table", None) is self._table]
        for module in self._users:
            module.rotary_table = listening
        return self

    def __exit__(self, *_: object) -> None:
        for module in self._users:
            module.rotary_table = self._table


def resident_bytes() -> int:
    """Memory of this process that lies in RAM now; where the system does not tell, the most it ever was."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # kilobytes everywhere but on macOS


def snapshot_bytes(snapshot: Snapshot) -> int:
    """The size of a snapshot as a file."""
    file = io.BytesIO()
    torch.save(snapshot, file)
    return file.tell()


@dataclass(frozen=True)
class Sample:
    """What was seen at one step of the walk."""

    step: int
    milliseconds: float  # of a step, since the sample before
    resident: int  # bytes
    snapshot: int  # bytes
    age: float  # latents, the largest of one period of the memory
    finite: bool  # whether the newest latents are


def sample(stream: WorldStream, step: int, milliseconds: float, rng: np.random.Generator) -> Sample:
    """Look at a stream, which takes the steps of one period of its memory meanwhile."""
    with RotaryAges() as ages:
        walk(stream, stream.config.memory.temporal_stride, rng)
    size = snapshot_bytes(stream.snapshot())
    gc.collect()
    finite = bool(stream.latents.isfinite().all())
    return Sample(step, milliseconds, resident_bytes(), size, ages.largest, finite)


def walk_far(stream: WorldStream, steps: int, rng: np.random.Generator) -> tuple[list[Sample], Snapshot]:
    """Walk ``steps`` steps: what was seen on the way, and what the stream was at `EARLY_STEP`."""
    places = np.linspace(EARLY_STEP, steps, SAMPLES + 1).astype(int).tolist()
    samples, done = [], 0
    with tqdm(total=steps, desc="walking", unit="step") as bar:
        for place in places:
            began = time.perf_counter()
            for _ in range(place - done):
                walk(stream, 1, rng)
                bar.update()
            milliseconds = (time.perf_counter() - began) / (place - done) * 1000
            if not samples:
                early = stream.snapshot()  # kept from here on, so that all samples hold it
            samples.append(sample(stream, place, milliseconds, rng))
            done = place + stream.config.memory.temporal_stride
    return samples, early


def growth(samples: Sequence[Sample]) -> float:
    """Resident memory at the last sample against the first, in percent."""
    return 100 * (samples[-1].resident / samples[0].resident - 1)


def verdict(name: str, value: float, target: float) -> str:
    """A figure in percent beside its target."""
    return f"{name}: {value:+.2f} %, target within {target:g} %: {'met' if abs(value) <= target else 'missed'}"


def check(settings: argparse.Namespace) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    least = EARLY_STEP + 10 * SAMPLES
    if settings.steps < least:
        raise ValueError(
            f"--steps is {settings.steps}; the walk is compared with its step {EARLY_STEP}, give at least {least}"
        )


def print_tables(samples: Sequence[Sample], flat: Flatness, last_step: int, max_age: int) -> None:
    """Both tables and the verdicts."""
    ages = [f"{s.age:g} of {max_age}" for s in samples]
    rows = [
        [f"{s.step:,}", f"{s.milliseconds:.2f}", f"{s.resident / MIB:.1f}", f"{s.snapshot:,}", age]
        for s, age in zip(samples, ages, strict=True)
    ]
    header = ["step", "ms a step on the way", "resident memory (MiB)", "snapshot (bytes)", "largest rotary age"]
    print(report.markdown_table(header, rows), end="\n\nA step early and late, timed in turn:\n\n")
    timed = [[flat.early.text(2), flat.late.text(2), flat.ratio.text(3)]]
    header = [f"ms at step {EARLY_STEP:,} (floor)", f"ms at step {last_step:,}", "late / early"]
    print(report.markdown_table(header, timed), end="\n\n")
    print(verdict("time of a late step", 100 * (flat.ratio.mean - 1), TIME_TARGET))
    print(verdict(f"resident memory since step {EARLY_STEP:,}", growth(samples), MEMORY_TARGET))
    if not all(s.finite for s in samples):
        print(f"latents are not finite from step {next(s.step for s in samples if not s.finite):,} on")


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    if settings.quick:
        settings.steps = min(settings.steps, QUICK_STEPS)
    check(settings)
    world = load_world(settings.world) if settings.preset is None else random_world(settings.preset, settings.seed)
    world.requires_grad_(False)
    rng = np.random.default_rng(settings.seed)
    late = begin(world, 1, settings.seed, settings.sampling_steps)
    samples, snapshot = walk_far(late, settings.steps, rng)
    early = begin(world, 1, settings.seed, settings.sampling_steps)
    early.restore(snapshot)
    flat = flatness(early, late, BLOCKS, rng, settings.seed)

    weights = "random weights" if settings.preset else "its trained weights"
    print(f"\nworld {world.name!r} with {weights}, one slot, {torch.get_num_threads()} threads,")
    print(f"{len(late.evaluations)} network evaluations per chunk, seed {settings.seed}\n")
    print_tables(samples, flat, settings.steps, world.config.memory.max_age)
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if settings.json:
        results = {
            "samples": [asdict(s) for s in samples],
            "early_ms": flat.early,
            "late_ms": flat.late,
            "ratio": flat.ratio,
            "memory_growth_percent": growth(samples),
            "max_age": world.config.memory.max_age,
        }
        report.write_json(settings.json, settings, results)
    if settings.plot:
        report.plot(settings.plot, panels(samples, flat, settings.steps), "steps", logarithmic=False)


def panels(samples: Sequence[Sample], flat: Flatness, last_step: int) -> dict[str, list[report.Curve]]:
    """Time in turn, and memory on the way."""
    steps = [s.step for s in samples]
    resident = [report.Interval(*[s.resident / MIB] * 3, count=1) for s in samples]
    return {
        "ms a step": [report.Curve("timed in turn", [EARLY_STEP, last_step], [flat.early, flat.late])],
        "resident memory (MiB)": [report.Curve("on the way", steps, resident)],
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="to walk (default: %(default)s)")
    parser.add_argument("--preset", choices=PRESETS, help="random weights of this size, in place of --world")
    parser.add_argument("--sampling-steps", type=int, help="network evaluations per chunk (default: the world's)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
