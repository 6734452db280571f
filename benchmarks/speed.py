"""How many environment steps a second, what they cost, and whether the cost stays the same as an episode grows.

Columns, from the inside to the outside, all measured in turn in one run:

  world, latents     the world without the time that its decoder takes (memory looks at pictures, so it always decodes)
  world              controls in, pictures out
  environment        `gymnasium.make_vec`: spaces, captions, task, infos
  + PPO inference    and a policy that looks at every picture (needs the extra "agents")
  + PPO training     and learns from them

beside the floor, real time (the game's own pace in every slot), and the ceiling, the machine's fastest matrix product
divided by the arithmetic of one step. Steps of all slots count; intervals are 95 % bootstrap intervals over blocks.
With --cumulative it is the world alone, technique by technique (`benchmarks.cumulative`).

examples:
  python -m benchmarks.speed --quick
  python -m benchmarks.speed --slots 1 16 --threads 2 --json results/speed.json --plot results/speed.png
  python -m benchmarks.speed --cumulative --slots 1 16
  python -m benchmarks.speed --cumulative --device cuda
  python -m benchmarks.speed --cumulative --device cuda --world worlds/fast --dtype bfloat16 --slots 1
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count
from tqdm import tqdm

from benchmarks import cumulative, report
from benchmarks.walk import begin, flatness, random_rows, walk
from world_model.checkpoint import DTYPES, load_world
from world_model.rollout import WorldStream
from world_model.world import World

LATENTS, WORLD, ENVIRONMENT = "world, latents", "world", "environment"
INFERENCE, TRAINING = "+ PPO inference", "+ PPO training"
MATRIX_SIZES = (1024, 2048, 4096)
MATRIX_SECONDS = 0.5  # for each size
MINIBATCH = 64  # environment steps of one gradient step of PPO
EARLY_STEP = 100
FLAT_BLOCKS = 12  # early and late in turn


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int  # blocks of every column
    seconds: float  # that a block should take
    rollout: int  # environment steps between two updates of PPO
    late_step: int


FULL = Effort(rounds=5, seconds=2.0, rollout=256, late_step=2000)
QUICK = Effort(rounds=3, seconds=0.5, rollout=64, late_step=400)


class DecoderClock:
    """Sums the time that a world's decoder takes while it is open."""

    def __init__(self, world: World) -> None:
        self.codec, self.seconds = world.codec, 0.0

    def __enter__(self) -> DecoderClock:
        decode = self.codec.decode

        def timed(*arguments: object) -> object:
            began = time.perf_counter()
            try:
                return decode(*arguments)
            finally:
                self.seconds += time.perf_counter() - began

        self.codec.decode = timed
        return self

    def __exit__(self, *_: object) -> None:
        del self.codec.decode


def matrix_peak(dtype: str) -> float:
    """The fastest matrix product of this machine now, in GFLOP/s."""
    best = 0.0
    for size in MATRIX_SIZES:
        one, two = (torch.randn(size, size, dtype=DTYPES[dtype]) for _ in range(2))
        began = time.perf_counter()
        while time.perf_counter() - began < MATRIX_SECONDS:
            start = time.perf_counter()
            torch.mm(one, two)
            best = max(best, 2 * size**3 / (time.perf_counter() - start) / 1e9)
    return best


def arithmetic(stream: WorldStream, rng: np.random.Generator) -> float:
    """GFLOP of one step of one slot: matrix products, convolutions and attention; multiply and add count as two."""

    def attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: object, **__: object) -> int:
        return sdpa_flop_count(query, key, value)

    on_cpu = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}  # the counter knows CUDA's only
    totals = []
    for _ in range(stream.config.memory.temporal_stride):  # one period of the memory
        with FlopCounterMode(display=False, custom_mapping=on_cpu) as counter:
            stream.step(random_rows(stream, rng))
        totals.append(counter.get_total_flops())
    return float(np.mean(totals)) / stream.num_slots / 1e9


@dataclass(frozen=True)
class Column:
    """Something that is measured: ``advance`` takes a number of batched steps, a multiple of ``multiple``."""

    advance: Callable[[int], None]
    multiple: int = 1


def make_env(slots: int, settings: argparse.Namespace) -> gymnasium.vector.VectorEnv:
    """The environment that is measured."""
    return gymnasium.make_vec(
        "wp2env:WorldPlay2-v0",
        slots,
        world=settings.world,
        action_mode="multidiscrete",
        sampling_steps=settings.steps,
        dtype=settings.dtype,
    )


def columns(world: World, slots: int, effort: Effort, settings: argparse.Namespace) -> dict[str, Column]:
    """What is measured with so many slots."""
    rng = np.random.default_rng(settings.seed)
    stream = begin(world, slots, settings.seed, settings.steps)
    env = make_env(slots, settings)
    env.action_space.seed(settings.seed)
    env.reset(seed=settings.seed)

    def run_world(steps: int) -> None:
        walk(stream, steps, rng)

    def run_environment(steps: int) -> None:
        for _ in range(steps):
            env.step(env.action_space.sample())

    measured = {WORLD: Column(run_world), ENVIRONMENT: Column(run_environment)}
    return measured | policy_columns(slots, effort.rollout, settings) if has_ppo() else measured


def has_ppo() -> bool:
    """Whether the PPO columns can be measured here."""
    return importlib.util.find_spec("stable_baselines3") is not None


def policy_columns(slots: int, rollout: int, settings: argparse.Namespace) -> dict[str, Column]:
    """PPO that acts, and PPO that learns."""
    from stable_baselines3 import PPO

    from agents.sb3 import StableBaselinesVecEnv

    env = StableBaselinesVecEnv(make_env(slots, settings))
    env.seed(settings.seed)
    length = max(2, rollout // slots)
    model = PPO("CnnPolicy", env, n_steps=length, batch_size=MINIBATCH, seed=settings.seed, device="cpu")
    observations = env.reset()

    def infer(steps: int) -> None:
        nonlocal observations
        for _ in range(steps):
            actions, _ = model.predict(observations, deterministic=False)
            observations = env.step(actions)[0]

    def learn(steps: int) -> None:
        model.learn(steps * slots, reset_num_timesteps=False)

    return {INFERENCE: Column(infer), TRAINING: Column(learn, length)}


def measure(
    world: World, slots: int, effort: Effort, settings: argparse.Namespace, bar: tqdm
) -> dict[str, report.Interval]:
    """Environment steps a second of every column, blocks of all columns in turn."""
    measured = columns(world, slots, effort, settings)
    steps = {}
    for name, column in measured.items():  # a first block warms up, a second tells how long the others must be
        column.advance(column.multiple)
        began = time.perf_counter()
        column.advance(column.multiple)
        steps[name] = column.multiple * max(1, round(effort.seconds / (time.perf_counter() - began)))
    rates: dict[str, list[float]] = {name: [] for name in (LATENTS, *measured)}
    for _ in range(effort.rounds):
        for name, column in measured.items():
            with DecoderClock(world) as decoder:
                began = time.perf_counter()
                column.advance(steps[name])
                seconds = time.perf_counter() - began
            rates[name].append(steps[name] * slots / seconds)
            if name == WORLD:
                rates[LATENTS].append(steps[name] * slots / (seconds - decoder.seconds))
            bar.update()
    return {name: report.bootstrap(values, settings.seed, statistic=np.median) for name, values in rates.items()}


def early_and_late(world: World, late_step: int, settings: argparse.Namespace) -> dict[str, report.Interval]:
    """Milliseconds of a step around step 100 and around step ``late_step``, measured in turn, and their ratio."""
    rng = np.random.default_rng(settings.seed)
    early, late = (begin(world, 1, settings.seed, settings.steps) for _ in range(2))
    for stream, steps in ((early, EARLY_STEP), (late, late_step)):
        for _ in tqdm(range(steps), desc=f"walking to step {steps}", unit="step", leave=False):
            walk(stream, 1, rng)
    flat = flatness(early, late, FLAT_BLOCKS, rng, settings.seed)
    return {f"ms at step {EARLY_STEP}": flat.early, f"ms at step {late_step}": flat.late, "ratio": flat.ratio}


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    if min(settings.slots) < 1:
        raise ValueError(f"--slots is {min(settings.slots)}; give at least 1")
    effort = QUICK if settings.quick else FULL
    if settings.cumulative:
        return technique_by_technique(effort, settings)
    if settings.device != "cpu":
        raise ValueError(f"--device {settings.device} is for --cumulative; the columns are measured on the CPU")
    began = time.monotonic()
    world = load_world(settings.world, dtype=settings.dtype)
    if not isinstance(world, World):
        raise ValueError(f"{settings.world} is a large world; the columns are of small ones, give --cumulative for it")
    cost = arithmetic(begin(world, 1, settings.seed, settings.steps), np.random.default_rng(settings.seed))
    peaks = [matrix_peak(settings.dtype)]

    names = (LATENTS, WORLD, ENVIRONMENT, *((INFERENCE, TRAINING) if has_ppo() else ()))
    total = len(settings.slots) * effort.rounds * (len(names) - 1)
    measured: dict[int, dict[str, report.Interval]] = {}
    with tqdm(total=total, desc="measuring", unit="block") as bar:
        for slots in settings.slots:
            measured[slots] = measure(world, slots, effort, settings, bar)
            peaks.append(matrix_peak(settings.dtype))
    flat = early_and_late(world, effort.late_step, settings)

    peak = max(peaks)
    print(
        f"\nworld {world.name!r}, {settings.steps or world.config.flow.sampling_steps} network evaluations per chunk,"
        f" {settings.dtype},"
    )
    print(f"{torch.get_num_threads()} threads of {report.machine()['processor']}; environment steps a second:\n")
    rows = []
    for slots, rates in measured.items():
        share = cost * rates[WORLD].mean / peak
        bounds = [f"{slots * world.config.chunk_rate:.3g}", f"{peak / cost:.3g}", f"{100 * share:.0f} %"]
        rows.append([slots, *(str(rates[name]) for name in names), *bounds])
    header = ["slots", *names, "real time (floor)", "matrix peak (ceiling)", "world's share of it"]
    print(report.markdown_table(header, rows))
    print(f"\n{cost:.3f} GFLOP a step; fastest matrix product {peak:.0f} GFLOP/s")
    if not has_ppo():
        print('without the PPO columns: they need stable-baselines3, pip install "worldplay2-gym[agents]"')
    print("\nCost of a step as an episode grows, one slot:\n")
    print(report.markdown_table(list(flat), [[str(interval) for interval in flat.values()]]))
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if settings.json:
        results = {"steps_per_second": measured, "gflop_per_step": cost, "peak_gflops": peak, "flatness": flat}
        report.write_json(settings.json, settings, results)
    if settings.plot:
        curves = [report.Curve(name, settings.slots, [measured[s][name] for s in settings.slots]) for name in names]
        report.plot(settings.plot, {"environment steps a second": curves}, "slots")


def technique_by_technique(effort: Effort, settings: argparse.Namespace) -> None:
    """Print the cumulative table of every number of slots."""
    began = time.monotonic()
    world = load_world(settings.world, settings.device, settings.dtype)
    measured = {
        slots: cumulative.measure(world, slots, effort.rounds, effort.seconds, settings.seed, settings.steps)
        for slots in settings.slots
    }
    for slots, results in measured.items():
        print(f"\nworld {world.name!r} on {settings.device}, slots: {slots}\n\n{cumulative.table(results)}")
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(settings.json, settings, {"cumulative": measured})
    if settings.plot:
        report.plot(settings.plot, {"environment steps a second": cumulative.curves(measured)}, "slots")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument(
        "--slots",
        type=int,
        nargs="+",
        help="numbers of slots to measure (default: 1 4 16 64; 1 with --cumulative --quick)",
    )
    parser.add_argument("--steps", type=int, help="network evaluations per chunk (default: the world's)")
    parser.add_argument("--cumulative", action="store_true", help="measure techniques of faster inference instead")
    parser.add_argument("--device", default="cpu", help="of --cumulative: cpu or cuda (default: %(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the networks (default: %(default)s)")
    settings = parser.parse_args(arguments)
    if settings.slots is None:
        compiles = settings.cumulative and settings.quick  # which takes a minute or so for every number
        settings.slots = [1] if compiles else [1, 4, 16, 64]
    return settings


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
