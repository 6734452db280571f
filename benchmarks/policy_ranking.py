"""Does the generated world tell good policies from bad ones as the true game does?

Policies of different strength, made without looking at the world (checkpoints along PPO's training in the true game,
a scripted policy, the same one with a share of random actions or wrong on purpose, behaviour cloning, and some that do
not look), are played in both. Episode e begins at the same recorded start of a held-out level with the same seed
everywhere, and is as long. The true game's reward is the engine's, the world's is that of its learned heads.

  Spearman, Kendall, Pearson  correlation of the policies' mean outcomes in the two places, 1 at best; a place in which
                              all policies are equal has none, and counts as 0. With 12 policies a Spearman rho above
                              0.59 is beyond chance at 5 %.
  MMRV                        mean maximum rank violation (SIMPLER) over the range of the true values, 0 at best.
  signed bias, absolute error of the world's value against the true one.
  regret of the favourite     the best true value less that of the policy that does best in the world.
  clear pairs                 the share of pairs in the right order among those whose true 95 % intervals do not
                              overlap; 0.5 is chance.

Beside the world stand the true game from as many other starts (ceiling), one value for all (floor), and controls that
must score near zero: the picture stays what it was; actions are exchanged by a permutation drawn anew in every step;
the network has random weights. The same reward heads judge all of them. Intervals are 95 % bootstrap intervals over
policies and starts; a policy's own value has one over starts.

Policies, evaluations and starts are kept in --out: an interrupted run goes on where it stopped.

examples:
  python -m benchmarks.policy_ranking --quick
  python -m benchmarks.policy_ranking --episodes 100 --data data/train --json results/policy_ranking.json \\
      --plot results/policy_ranking.png
  python -m benchmarks.policy_ranking --starts starts/test.safetensors --policies scripted random runs/agent
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from gymnasium.vector import VectorEnv

from agents.evaluate import Evaluation
from agents.places import EPISODE_STEPS, GAME, WORLD
from agents.ranking import SPEARMAN, agreement, clear_pairs
from benchmarks import arena, report
from benchmarks.arena import CONTROLS, Arena, Contestant
from wp2env.loading import WorldHandle
from wp2env.starts import read_bank

WANTED, FEWEST = 0.8, 12  # Spearman's rho of success, over so many policies
NAMED = (
    "scripted", "broken:noisy:0.25", "broken:noisy:0.5", "broken:noisy:0.75", "broken:mirrored", "broken:backwards",
    "broken:spin", "idle", "random",
)  # fmt: skip
QUICK_STEPS, QUICK_BUDGETS = [16], [0, 6000]
OTHER, FLOOR = f"{GAME}, other starts (ceiling)", "one value for all (floor)"
Played = dict[str, dict[tuple[str, int], Evaluation]]  # by place, policy and length of episodes


def settle(settings: argparse.Namespace) -> None:
    """Make a quick run small and a run of its own, and refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    arena.settle(settings)
    report.require_positive(settings, "steps")
    if settings.quick:
        settings.steps, settings.budgets, settings.train_seeds = QUICK_STEPS, QUICK_BUDGETS, settings.train_seeds[:1]
    if min(settings.budgets) < 0:
        raise ValueError(f"--budgets are {settings.budgets}; give steps from 0 on")
    for name in ("steps", "budgets", "train_seeds", "policies"):
        values = getattr(settings, name) or []
        if len(set(values)) < len(values):
            raise ValueError(f"--{name.replace('_', '-')} are {values}; give each of them once")
    if settings.policies and len(settings.policies) < 2:
        raise ValueError(f"--policies are {settings.policies}; a ranking takes at least 2")
    settings.steps = sorted(settings.steps)


def contestants(settings: argparse.Namespace, size: int) -> dict[str, Contestant]:
    """Policies by name: the given ones, or those of the docstring, trained as far as they are not there already."""
    if settings.policies:
        return {policy: (policy, settings.seed) for policy in settings.policies}
    found = {name.removeprefix("broken:"): (name, settings.seed) for name in NAMED}
    return found | trained(settings, size) | clones(settings, size)


def trained(settings: argparse.Namespace, size: int) -> dict[str, Contestant]:
    """Checkpoints of PPO in the true game."""
    from agents.budgets import train_to
    from agents.train import AgentRun

    starts = arena.starts_to_learn_from(settings, size)
    found = {}
    for seed in settings.train_seeds:
        run = AgentRun(task=settings.task, place=GAME, starts=str(starts), seed=seed, world=GAME)
        folders = train_to(run, settings.budgets, settings.out / f"ppo-seed{seed}")
        found |= {f"PPO {steps:,} steps, seed {seed}": (str(path), settings.seed) for steps, path in folders.items()}
    return found


def clones(settings: argparse.Namespace, size: int) -> dict[str, Contestant]:
    """Behaviour cloning."""
    data = arena.recordings(settings, size)
    path = arena.cloned(data, settings.out / "cloning", settings.task, settings.clone_steps, settings.seed)
    return {"behaviour cloning": (str(path), settings.seed)}


def places(place: Arena) -> dict[str, Callable[[], VectorEnv]]:
    """The true game, the world and the controls."""
    return {GAME: lambda: place.make(GAME), WORLD: lambda: place.make(WORLD), **place.controls()}


def compete(settings: argparse.Namespace, place: Arena, policies: Mapping[str, Contestant]) -> Played:
    """Play all policies everywhere, in the true game from other starts, too, where there are enough."""
    first, others = range(settings.episodes), range(settings.episodes, 2 * settings.episodes)
    made = places(place)
    played = {name: place.play(name, make, policies, settings.steps, first) for name, make in made.items()}
    if len(read_bank(place.starts)) >= others.stop:
        played[OTHER] = place.play(GAME, made[GAME], policies, settings.steps, others)
    else:
        print(f"the ceiling is left out: it takes {others.stop} starts, and {place.starts} holds fewer")
    return played


def outcomes(of: Mapping[tuple[str, int], Evaluation], measure: str, steps: int) -> np.ndarray:
    """One measure of all policies, float ``[P, N]``."""
    return np.stack([evaluation.measures[measure] for (_, length), evaluation in of.items() if length == steps])


def _measures(played: Played) -> list[str]:
    return arena.measures(next(iter(played[GAME].values())))


def compare(played: Played, measure: str, steps: int, seed: int) -> dict[str, dict[str, report.Interval]]:
    """How well every place agrees with the true game, by its name."""
    true = outcomes(played[GAME], measure, steps)
    judged = {name: outcomes(of, measure, steps) for name, of in played.items() if name != GAME}
    judged[FLOOR] = np.full_like(true, true.mean())
    return {name: agreement(true, values, seed) for name, values in judged.items()}


def values(played: Played, steps: int, seed: int) -> dict[str, dict[str, report.Interval]]:
    """Every policy's values in the true game and in the world, and their paired differences; the best first."""
    rows = {}
    for policy, length in played[GAME]:
        if length != steps:
            continue
        true, world = (played[place][policy, steps].measures for place in (GAME, WORLD))
        rows[policy] = {
            f"{measure}, {name}": report.bootstrap(of, seed)
            for measure in _measures(played)
            for name, of in (
                (GAME, true[measure]), (WORLD, world[measure]), (f"{WORLD} - {GAME}", world[measure] - true[measure])
            )
        }  # fmt: skip
    first = f"{_measures(played)[0]}, {GAME}"
    return dict(sorted(rows.items(), key=lambda row: -row[1][first].mean))


def verdict(found: Mapping[str, Mapping[str, report.Interval]], policies: int, what: str) -> list[str]:
    """How the world stands to what is wanted, and whether the controls fail as they must."""
    rho = {place: cells[SPEARMAN] for place, cells in found.items()}
    line = f"Spearman rho of {what}: {rho[WORLD].text(2)} over {policies} policies (wanted: at least {WANTED})"
    lines = [line if policies >= FEWEST else f"{line}; a claim takes {FEWEST} policies"]
    for place in CONTROLS:
        if place in rho:
            near = rho[place].low <= 0 <= rho[place].high
            lines.append(f"  {place}: {rho[place].text(2)}, {'as it must' if near else 'BUT it must be near 0'}")
    return lines


def scatter(path: Path, rows: Mapping[str, Mapping[str, report.Interval]], names: Sequence[str]) -> None:
    """The world's value over the true one, a point for each policy, with intervals; one panel for each measure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(names), figsize=(5.5 * len(names) + 2.5, 5), squeeze=False)
    colours = pyplot.get_cmap("turbo")(np.linspace(0.05, 0.95, len(rows)))
    for axis, measure in zip(axes[0], names, strict=True):
        for (policy, row), colour in zip(rows.items(), colours, strict=True):
            across, up = (row[f"{measure}, {place}"] for place in (GAME, WORLD))
            bars = [[[of.mean - of.low], [of.high - of.mean]] for of in (across, up)]
            axis.errorbar(across.mean, up.mean, bars[1], bars[0], "o", color=colour, label=policy, alpha=0.8)
        axis.set_aspect("equal", adjustable="datalim")
        axis.axline((0, 0), slope=1, color="grey", linewidth=1, linestyle=":")
        axis.set(xlabel=f"{measure} in the true game", ylabel=f"{measure} in the generated world")
        axis.grid(alpha=0.3)
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    report.save_figure(figure, path)


def main(settings: argparse.Namespace) -> None:
    """Make the policies, play them everywhere, and print the tables."""
    began = time.monotonic()
    settle(settings)
    size = WorldHandle(settings.world, settings.device).get().config.video.height
    place = arena.build(settings, settings.steps[-1], size)
    policies = contestants(settings, size)
    played = compete(settings, place, policies)
    names, longest = _measures(played), settings.steps[-1]
    rows = values(played, longest, settings.seed)
    found = {
        f"{measure}, {steps} steps": compare(played, measure, steps, settings.seed)
        for measure in names
        for steps in settings.steps
    }
    clear = int(clear_pairs(outcomes(played[GAME], names[0], longest), settings.seed).sum()) // 2

    print(
        f"\n{settings.task!r}: {len(policies)} policies, {settings.episodes} starts in as many held-out levels, world"
    )
    print(f"{settings.world!r}, episodes of up to {longest} steps; mean and 95 % interval over starts\n")
    print(arena.table(rows, "policy"), end="\n\n")
    for title, by_place in found.items():
        print(f"Agreement with the true game in {title} (intervals over policies and starts):\n")
        print(arena.table(by_place, "place"), end="\n\n")
    print(f"{clear} of {len(policies) * (len(policies) - 1) // 2} pairs are clear by {names[0]} after {longest} steps")
    claims = [f"{names[0]}, {steps} steps" for steps in settings.steps]
    lines = [line for what in claims for line in verdict(found[what], len(policies), what)]
    print(*lines, f"{time.monotonic() - began:.0f} s in all", sep="\n")
    if settings.quick:
        print(
            "this quick run shows that the machinery works; its policies have hardly learned and its episodes are short"
        )
    if settings.json:
        report.write_json(settings.json, settings, {"policies": rows, "agreement": found, "verdict": lines})
    if settings.plot:
        scatter(settings.plot, rows, names)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    arena.add_options(parser, Path("runs/policy-ranking"))
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[16, EPISODE_STEPS], help="lengths of episodes (default: 16 48)"
    )
    parser.add_argument("--policies", nargs="+", help="names and paths to rank (default: see above)")
    parser.add_argument(
        "--budgets", type=int, nargs="+", default=[0, 4000, 16000, 60000],
        help="steps at which PPO's checkpoints are taken (default: 0 4000 16000 60000)",
    )  # fmt: skip
    parser.add_argument("--train-seeds", type=int, nargs="+", default=[0, 1], help="of PPO (default: 0 1)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
