"""Does what is learned in the generated world hold in the true game?

PPO learns only in the generated world, from the learned rewards, and is then played in the true game, which it has
never seen. All arms are played from the same recorded starts of held-out levels, with the same seeds, and are judged by
the engine:

  PPO in the world            the arm in question; its episodes begin where the task begins
  PPO from recorded moments   the same in short imagined episodes, which begin anywhere on the recorded ways to the goal
                              (--moments of them), where the world's errors have less time to grow
  PPO in the true game        as many steps, of the true game (ceiling), and as many as the recordings hold, where they
                              hold fewer: the same data without a world
  behaviour cloning           imitates the recordings where they fulfil the task
  scripted                    looks for the red ball and walks there
  random                      the floor
  actions shuffled            PPO in a world in which actions have no meaning; it must fall to random

No checkpoint is chosen by how it does: the one at the end of each budget counts. The same policies are played in the
world, too; a policy that lives off the world's errors shows a large gap there. Intervals are 95 % bootstrap intervals
over seeds and starts, of ratios as well; a ratio takes a denominator without any success for half a success.

With --sweep, PPO also learns in worlds of other temperatures (the noise that chunks begin from) and in episodes of
other lengths, as many steps as the smallest of --steps, from recorded moments if there are any. Each is played in the
world that it learned in, and in the true game for as many steps as all others.

Trainings, evaluations and starts are kept in --out: an interrupted run goes on where it stopped.

examples:
  python -m benchmarks.policy_transfer --quick
  python -m benchmarks.policy_transfer --steps 30000 60000 --seeds 0 1 2 --data data/train --sweep \\
      --json results/policy_transfer.json --plot results/policy_transfer.png
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from gymnasium.vector import VectorEnv

from agents.evaluate import Evaluation
from agents.places import EPISODE_STEPS, GAME, IMAGINED_STEPS, WORLD
from benchmarks import arena, report
from benchmarks.arena import Arena, Contestant
from world_model.data.store import ClipStore
from world_model.intervals import drawn_again
from wp2env.loading import WorldHandle

if TYPE_CHECKING:
    from agents.transfer import TransferRun

OF_CEILING, OF_FLOOR = 0.7, 3.0  # wanted of PPO in the world: success over that in the game, and over random's
QUICK_STEPS, QUICK_EPISODE, QUICK_MOMENTS = [1500], 16, 32
IN_WORLD, IN_GAME, SHUFFLED = "PPO in the world", "PPO in the true game", "PPO in the world, actions shuffled"
FROM_MOMENTS = "PPO in the world, from recorded moments"
CLONING, SCRIPTED, RANDOM = "behaviour cloning", "scripted", "random"
Entrants = dict[str, list[Contestant]]  # of each arm, one policy for every seed
Rows = dict[str, dict[str, report.Interval]]


@dataclass(frozen=True)
class School:
    """Trains PPO in either place, once for each seed, and keeps it."""

    settings: argparse.Namespace
    starts: Path  # where the task begins

    def run(self, place: str) -> TransferRun:
        """The usual training; `dataclasses.replace` makes others of it."""
        from agents.transfer import TransferRun

        return TransferRun(
            task=self.settings.task, place=place, world=self.settings.world if place == WORLD else GAME,
            starts=str(self.starts), episode_steps=self.settings.episode_steps, dtype=self.settings.dtype,
        )  # fmt: skip

    def teach(self, name: str, run: TransferRun, budgets: Sequence[int]) -> Entrants:
        """PPO after each budget of environment steps."""
        from agents.budgets import train_to

        kind = f"{run.place}{'-shuffled' if run.shuffled else ''}"
        kind += f"-temperature{run.temperature:g}-length{run.episode_steps}-{Path(run.starts).stem}"
        found: Entrants = {}
        for seed in self.settings.seeds:
            policies = train_to(
                replace(run, seed=seed), budgets, self.settings.out / f"{kind}-seed{seed}", self.settings.device
            )
            for steps, policy in policies.items():
                found.setdefault(label(name, steps), []).append((str(policy), seed))
        return found


def label(name: str, steps: int) -> str:
    """An arm with a budget."""
    return f"{name}, {steps:,} steps"


def settle(settings: argparse.Namespace) -> None:
    """Make a quick run small and a run of its own, and refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    arena.settle(settings)
    report.require_positive(settings, "steps", "episode_steps", "horizons", "moment_steps")
    if settings.moments < 0:
        raise ValueError(f"--moments is {settings.moments}; give a number, or 0 to leave that arm out")
    for name in ("seeds", "steps", "temperatures", "horizons"):
        values = getattr(settings, name)
        if len(set(values)) < len(values):
            raise ValueError(f"--{name} are {values}; give each of them once")
    if min(settings.seeds) < 0:
        raise ValueError(f"--seeds are {settings.seeds}; give numbers from 0 on")
    if not all(np.isfinite(t) and t >= 0 for t in settings.temperatures):
        raise ValueError(f"--temperatures are {settings.temperatures}; give numbers of 0 or more")
    if settings.quick:
        settings.steps, settings.seeds, settings.episode_steps = QUICK_STEPS, settings.seeds[:1], QUICK_EPISODE
        settings.moments = min(settings.moments, QUICK_MOMENTS)
    settings.steps = sorted(settings.steps)


def real_steps(data: Path) -> int:
    """Steps of the true game that recordings hold."""
    store = ClipStore(data)
    return sum(store.length(clip) - 1 for clip in range(len(store)))


def arms(settings: argparse.Namespace, school: School, data: Path) -> Entrants:
    """All arms, trained as far as they are not there already."""
    held = real_steps(data)
    in_game = sorted({*settings.steps, min(held, settings.steps[-1])})
    print(f"the recordings {data} hold {held:,} steps")
    world = school.run(WORLD)
    return {
        **school.teach(IN_WORLD, world, settings.steps),
        **from_moments(settings, school, data),
        **school.teach(IN_GAME, school.run(GAME), in_game),
        CLONING: clones(settings, data),
        SCRIPTED: [("scripted", settings.seeds[0])],
        RANDOM: [("random", seed) for seed in settings.seeds],
        **school.teach(SHUFFLED, replace(world, shuffled=True), settings.steps),
    }


def from_moments(settings: argparse.Namespace, school: School, data: Path) -> Entrants:
    """PPO in short episodes that go on from the recordings; nothing if no moments are wanted.

    Raises:
        ValueError: when the recordings hold fewer.
    """
    if not settings.moments:
        return {}
    return school.teach(FROM_MOMENTS, imagined(settings, school, data), settings.steps)


def imagined(settings: argparse.Namespace, school: School, data: Path) -> TransferRun:
    """A training in such episodes; see `from_moments`."""
    from wp2env.recorded_starts import MOMENT_FRAMES, starts_on_the_way

    file = settings.out / f"moments-{settings.moments}-seed{settings.seed}.safetensors"
    if not file.is_file():
        generator = np.random.default_rng(settings.seed)
        bank = starts_on_the_way(ClipStore(data), settings.task, settings.moments, MOMENT_FRAMES, generator)
        file.parent.mkdir(parents=True, exist_ok=True)
        bank.save(file)
    return replace(school.run(WORLD), starts=str(file), episode_steps=settings.moment_steps)


def clones(settings: argparse.Namespace, data: Path) -> list[Contestant]:
    """Behaviour cloning."""
    folders = {seed: settings.out / f"cloning-seed{seed}" for seed in settings.seeds}
    return [
        (str(arena.cloned(data, folder, settings.task, settings.clone_steps, seed)), seed)
        for seed, folder in folders.items()
    ]


def play(
    settings: argparse.Namespace, place: Arena, name: str, make: Callable[[], VectorEnv], entrants: Entrants
) -> dict[str, list[Evaluation]]:
    """The evaluations of every arm in one place, one for each of its seeds."""
    each = {(arm, k): contestant for arm, of in entrants.items() for k, contestant in enumerate(of)}
    played = place.play(name, make, each, [place.steps], range(settings.episodes))
    return {arm: [played[(arm, k), place.steps] for k in range(len(of))] for arm, of in entrants.items()}


def stacked(of: Sequence[Evaluation], measure: str) -> np.ndarray:
    """One measure of an arm: float ``[seeds, starts]``."""
    return np.stack([evaluation.measures[measure] for evaluation in of])


def row(game: Sequence[Evaluation], world: Sequence[Evaluation], seed: int) -> dict[str, report.Interval]:
    """An arm's values in both places, and the gap, which is paired by start."""
    cells = {}
    for measure in arena.measures(game[0]):
        true, judged = stacked(game, measure), stacked(world, measure)
        values = {GAME: true, WORLD: judged, f"{WORLD} - {GAME}": judged - true}
        cells |= {f"{measure}, {name}": report.crossed_bootstrap(of, seed) for name, of in values.items()}
    return cells


def ratio(over: np.ndarray, under: np.ndarray, seed: int = 0) -> report.Interval:
    """The mean of ``over [S, N]`` over that of ``under [S', N]``, successes from the same ``N`` starts, with its
    bootstrap interval: starts are drawn again, the same ones for both, and the seeds of each.

    A denominator without any success counts as half a success.
    """
    rng = np.random.default_rng(seed)
    starts = _shares(rng, over.shape[1])

    def means(values: np.ndarray) -> np.ndarray:
        return ((_shares(rng, len(values)) @ values) * starts).sum(1)

    least = 0.5 / under.size
    estimates = means(over) / np.maximum(means(under), least)
    return report.percentile_interval(over.mean() / max(under.mean(), least), estimates, over.size)


def _shares(rng: np.random.Generator, count: int) -> np.ndarray:
    """Shares ``[R, count]`` of what is drawn again."""
    return drawn_again(count, rng) / count


def ratios(game: Mapping[str, Sequence[Evaluation]], settings: argparse.Namespace) -> dict[str, report.Interval]:
    """What is claimed of the arms, by the first measure in the true game."""
    measure = arena.measures(game[RANDOM][0])[0]
    found = {}
    inside = (IN_WORLD, FROM_MOMENTS) if settings.moments else (IN_WORLD,)
    for steps in settings.steps:
        for over, under in (
            *((label(arm, steps), label(IN_GAME, steps)) for arm in inside),
            *((label(arm, steps), RANDOM) for arm in (*inside, SHUFFLED)),
        ):
            found[f"{over} / {under}"] = ratio(
                stacked(game[over], measure), stacked(game[under], measure), settings.seed
            )
    return found


def verdict(found: Mapping[str, report.Interval]) -> list[str]:
    """A line for each ratio, with what is wanted of it."""
    lines = []
    for pair, value in found.items():
        wanted = f"at least {OF_FLOOR:g}" if pair.endswith(RANDOM) else f"at least {OF_CEILING:.0%}"
        wanted = "about 1: it must fall to random" if pair.startswith(SHUFFLED) else wanted
        lines.append(f"{pair}: {value.text(2)} (wanted: {wanted})")
    return lines


def sweep(settings: argparse.Namespace, place: Arena, school: School, data: Path) -> Rows:
    """PPO in worlds of other temperatures and in episodes of other lengths, one changed at a time."""
    usual = imagined(settings, school, data) if settings.moments else school.run(WORLD)
    plans = [(temperature, usual.episode_steps) for temperature in settings.temperatures]
    plans += [(1.0, length) for length in settings.horizons]
    rows = {}
    for temperature, length in plans:
        run = replace(usual, temperature=temperature, episode_steps=length)
        entrants = school.teach(f"temperature {temperature:g}, episodes of {length} steps", run, settings.steps[:1])
        where = WORLD if temperature == 1 else f"{WORLD}, temperature {temperature:g}"
        game = play(settings, place, GAME, lambda: place.make(GAME), entrants)
        world = play(settings, place, where, lambda t=temperature: place.make(WORLD, temperature=t), entrants)
        (arm,) = entrants
        rows[arm] = row(game[arm], world[arm], settings.seed)
    return rows


def draw(path: Path, rows: Rows, measure: str) -> None:
    """A bar for each arm in both places, with intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(9, 1 + 0.5 * len(rows)))
    heights = np.arange(len(rows))
    for shift, place, name in ((-0.2, GAME, "in the true game"), (0.2, WORLD, "in the generated world")):
        cells = [cells[f"{measure}, {place}"] for cells in rows.values()]
        means = np.array([cell.mean for cell in cells])
        errors = np.array([[cell.mean - cell.low, cell.high - cell.mean] for cell in cells]).T
        axis.barh(heights + shift, means, 0.38, xerr=errors, capsize=2, label=name)
    axis.set_yticks(heights, list(rows))
    axis.invert_yaxis()
    axis.set(xlabel=measure)
    axis.grid(alpha=0.3, axis="x")
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    report.save_figure(figure, path)


def main(settings: argparse.Namespace) -> None:
    """Train all arms, play them in both places, and print the tables."""
    began = time.monotonic()
    settle(settings)
    size = WorldHandle(settings.world, settings.device).get().config.video.height
    place = arena.build(settings, settings.episode_steps, size)
    school = School(settings, arena.starts_to_learn_from(settings, size))
    data = arena.recordings(settings, size)
    entrants = arms(settings, school, data)
    game = play(settings, place, GAME, lambda: place.make(GAME), entrants)
    world = play(settings, place, WORLD, lambda: place.make(WORLD), entrants)
    rows = {arm: row(game[arm], world[arm], settings.seed) for arm in entrants}
    found = ratios(game, settings)
    swept = sweep(settings, place, school, data) if settings.sweep else {}

    print(f"\n{settings.task!r}: seeds {settings.seeds}, {settings.episodes} starts in as many held-out levels, world")
    print(f"{settings.world!r}, episodes of up to {place.steps} steps; mean and 95 % interval over seeds and starts\n")
    print(arena.table(rows, "arm"), end="\n\n")
    lines = verdict(found)
    print(f"Ratios of {arena.measures(game[RANDOM][0])[0]} in the true game:\n", *lines, sep="\n")
    if swept:
        print("\nWhat the world is like in which PPO learns, and where it is played beside the game:\n")
        print(arena.table(swept, "learned in"))
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if settings.quick:
        print("this quick run shows that the machinery works; its policies have hardly begun to learn")
    if settings.json:
        report.write_json(settings.json, settings, {"arms": rows, "ratios": found, "sweep": swept, "verdict": lines})
    if settings.plot:
        draw(settings.plot, rows | swept, arena.measures(game[RANDOM][0])[0])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    arena.add_options(parser, Path("runs/policy-transfer"))
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[60000], help="environment steps of each training (default: 60000)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the trainings (default: 0 1 2)")
    parser.add_argument(
        "--episode-steps", type=int, default=EPISODE_STEPS, help="longest episode (default: %(default)s)"
    )
    parser.add_argument(
        "--moments", type=int, default=400, help="recorded ones to learn from, 0 for no such arm (default: %(default)s)"
    )
    parser.add_argument(
        "--moment-steps",
        type=int,
        default=IMAGINED_STEPS,
        help="longest episode from a moment (default: %(default)s)",
    )
    parser.add_argument("--sweep", action="store_true", help="learn in other worlds, too; the next two say which")
    parser.add_argument(
        "--temperatures", type=float, nargs="+", default=[0.5, 1.0, 1.5], help="of the world (default: 0.5 1.0 1.5)"
    )
    parser.add_argument(
        "--horizons", type=int, nargs="+", default=[8, 16, EPISODE_STEPS], help="steps of an episode (default: 8 16 48)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
