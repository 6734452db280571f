"""How much faster an agent trains on the slots of one batched environment than on as many single environments.

The same PPO, on ``--slots`` slots of one network and on that many environments in the `DummyVecEnv` of
Stable-Baselines3, learns in turn, block by block, in one run. Steps of all slots count. Where the time goes is
measured by clocks around the methods that do the work:

  world       controls in, latents out, and its memory
  decoding    latents in, pictures out
  reward      the task's judgement
  environment spaces, captions, infos, starts
  PPO         acting, learning, and the adapter between both

Beside them stand the floor, real time (the game's own pace in every slot), and the ceiling, what PPO alone allows: it
learns as much on an environment that costs nothing, which shows the same picture always. Intervals are 95 % bootstrap
intervals over blocks; ratios are taken of blocks that were measured one after the other.

examples:
  python -m benchmarks.agent_speed --quick
  python -m benchmarks.agent_speed --slots 1 4 16 --task "walk to the red ball" --rounds 8 --plot speed.png
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from tqdm import tqdm

from agents.algorithms import make_algorithm
from agents.places import EPISODE_STEPS, WORLD, make_env
from agents.sb3 import StableBaselinesVecEnv
from benchmarks import report
from world_model.checkpoint import DTYPES, load_world
from world_model.rollout import WorldStream
from wp2env.tasks import make_task
from wp2env.vector_env import WorldPlay2VectorEnv

BATCHED, SINGLE, CEILING = "one batched environment", "single environments", "PPO alone (ceiling)"
ARMS = (BATCHED, SINGLE, CEILING)
PARTS = ("world", "decoding", "reward", "environment", "PPO")
ROUNDS, QUICK_ROUNDS = 6, 2
ENVIRONMENT_ID = "wp2env:WorldPlay2-v0"


class Clock:
    """Sums the seconds that methods of classes take while it is open."""

    def __init__(self, methods: Sequence[tuple[type, str]]) -> None:
        self.methods, self.seconds = methods, 0.0
        self._originals: list[tuple[type, str, Callable]] = []

    def __enter__(self) -> Clock:
        for kind, name in self.methods:
            original = getattr(kind, name)
            self._originals.append((kind, name, original))
            setattr(kind, name, self._timed(original))
        return self

    def _timed(self, original: Callable) -> Callable:
        @wraps(original)
        def timed(*arguments: Any, **more: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*arguments, **more)
            finally:
                self.seconds += time.perf_counter() - began

        return timed

    def __exit__(self, *_: object) -> None:
        for kind, name, original in reversed(self._originals):
            setattr(kind, name, original)
        self._originals.clear()


class StandingStill(VecEnv):
    """As many slots, with the same spaces, of an environment that costs nothing: the same picture always, no reward
    and no end."""

    def __init__(self, like: VecEnv) -> None:
        super().__init__(like.num_envs, like.observation_space, like.action_space)
        low, high = (bound.astype(np.float64) for bound in (like.observation_space.low, like.observation_space.high))
        grey = ((low + high) / 2).astype(like.observation_space.dtype)
        self.pictures = np.repeat(grey[None], self.num_envs, axis=0)
        self.rewards, self.dones = np.zeros(self.num_envs, dtype=np.float32), np.zeros(self.num_envs, dtype=bool)

    def reset(self) -> np.ndarray:
        return self.pictures

    def step_async(self, actions: np.ndarray) -> None:
        """Whatever is done, nothing happens."""

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        return self.pictures, self.rewards, self.dones, [{} for _ in range(self.num_envs)]

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [getattr(self, method_name)(*args, **kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


def learn(model: Any, codec: type, task: type) -> tuple[float, dict[str, float]]:
    """Environment steps a second of one rollout and what is learned from it, and the seconds of each part."""
    steps = model.n_steps * model.n_envs
    with ExitStack() as stack:
        stream = stack.enter_context(Clock([(WorldStream, "step"), (WorldStream, "reset")]))
        decoder = stack.enter_context(Clock([(codec, "decode")]))
        judge = stack.enter_context(Clock([(task, "__call__"), (task, "reset")]))
        env = stack.enter_context(Clock([(WorldPlay2VectorEnv, "step"), (WorldPlay2VectorEnv, "reset")]))
        began = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        total = time.perf_counter() - began
    inside = stream.seconds + judge.seconds
    parts = (
        stream.seconds - decoder.seconds,
        decoder.seconds,
        judge.seconds,
        env.seconds - inside,
        total - env.seconds,
    )
    return steps / total, dict(zip(PARTS, parts, strict=True))


def arms(slots: int, settings: argparse.Namespace) -> dict[str, VecEnv]:
    """The same slots as one environment and as many, and standing still."""

    def single() -> gymnasium.Env:
        return gymnasium.make(
            ENVIRONMENT_ID, world=settings.world, task=settings.task, action_mode="discrete",
            max_episode_steps=EPISODE_STEPS, dtype=settings.dtype,
        )  # fmt: skip

    batch = StableBaselinesVecEnv(
        make_env(WORLD, slots, task=settings.task, world=settings.world, dtype=settings.dtype)
    )
    found = {BATCHED: batch, SINGLE: DummyVecEnv([single] * slots), CEILING: StandingStill(batch)}
    for env in found.values():
        env.seed(settings.seed)
    return found


@dataclass(frozen=True)
class Found:
    """What was measured with so many slots.

    Attributes:
        floor: environment steps a second of real time.
        speeds: environment steps a second by arm.
        ratio: of the batched environment to the single ones.
        of_ceiling: the share of what PPO alone allows, by arm.
        shares: of the time, by arm and part.
    """

    floor: float
    speeds: dict[str, report.Interval]
    ratio: report.Interval
    of_ceiling: dict[str, report.Interval]
    shares: dict[str, dict[str, float]]


def measure(slots: int, settings: argparse.Namespace, bar: tqdm) -> Found:
    """Blocks of all arms in turn; the first of each warms up."""
    world = load_world(settings.world)
    codec, task = type(world.codec), type(make_task(settings.task))
    envs = arms(slots, settings)
    models = {name: make_algorithm("ppo", env, settings.seed) for name, env in envs.items()}
    rates: dict[str, list[float]] = {name: [] for name in models}
    spent = {name: dict.fromkeys(PARTS, 0.0) for name in models}
    for block in range(1 + settings.rounds):
        for name, model in models.items():
            rate, parts = learn(model, codec, task)
            bar.update()
            if block > 0:
                rates[name].append(rate)
                spent[name] = {part: spent[name][part] + parts[part] for part in PARTS}
    for env in envs.values():
        env.close()

    def ratio(name: str, to: str) -> report.Interval:
        return report.bootstrap(np.divide(rates[name], rates[to]), settings.seed)

    return Found(
        slots * world.config.chunk_rate,
        {name: report.bootstrap(values, settings.seed) for name, values in rates.items()},
        ratio(BATCHED, SINGLE),
        {name: ratio(name, CEILING) for name in (BATCHED, SINGLE)},
        {name: {part: parts[part] / sum(parts.values()) for part in PARTS} for name, parts in spent.items()},
    )


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its table."""
    if settings.quick:
        settings.rounds = min(settings.rounds, QUICK_ROUNDS)
    report.require_positive(settings, "slots", "rounds")
    began = time.monotonic()
    with tqdm(total=len(settings.slots) * (1 + settings.rounds) * len(ARMS), unit="block") as bar:
        measured = {slots: measure(slots, settings, bar) for slots in settings.slots}
    rows = []
    for slots, found in measured.items():
        rows.append([slots, "real time (floor)", f"{found.floor:.3g}", *[""] * (1 + len(PARTS))])
        for name in ARMS:
            of_ceiling = found.of_ceiling[name].text(2) if name in found.of_ceiling else ""
            shares = [f"{100 * found.shares[name][part]:.0f} %" for part in PARTS]
            rows.append([slots, name, str(found.speeds[name]), of_ceiling, *shares])
    print(f"\nPPO that learns {settings.task!r}, {settings.dtype}, {report.machine()['processor']}:\n")
    print(report.markdown_table(["slots", "", "environment steps a second", "of the ceiling", *PARTS], rows))
    print()
    for slots, found in measured.items():
        print(f"{slots} slots: {found.ratio.text(2)} times as fast in one batched environment")
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(
            settings.json, settings, {"slots": {slots: asdict(found) for slots, found in measured.items()}}
        )
    if settings.plot:
        curves = [
            report.Curve(name, settings.slots, [measured[s].speeds[name] for s in settings.slots]) for name in ARMS
        ]
        report.plot(settings.plot, {"environment steps a second": curves}, "slots")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[16], help="numbers of slots to measure (default: 16)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="blocks of each that count (default: %(default)s)")
    parser.add_argument("--task", default="explore", help="what is learned (default: %(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the world (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
