"""Do the learned rewards say what the true game says? On held-out levels, where the engine knows.

The recorded actions of clips that reach a task's goal, or fail to, are played by the world from a true start, and its
reward heads judge what it shows. *Precision* and *recall*: of the declared successes, how many are true, and of the
true ones, how many are declared, each within 2 steps. *AUROC*: how well single steps with a reward are told from the
others. *Correlation* of expected and true reward, step by step. *Calibration error* of the probabilities, in bins of
equally many steps.

The ceiling of what generated pictures allow are the same heads on the true frames of the same clips. The floor is
what they say of another clip, against this one's truth: what hits by chance. A constant has an AUROC of 0.5 and no
correlation, declares nothing or every run at its first step, and is calibrated only if it knows the share of events.
Steps after a task has ended do not count: its goal may still be in view, and pays nothing more.

Intervals are 95 % bootstrap intervals over levels; a resample that lacks what a value needs is left out.

examples:
  python -m benchmarks.reward --quick
  python -m benchmarks.reward --json results/reward.json --plot results/reward.png
  python -m benchmarks.reward --world worlds/mine --heads reward.safetensors --data data/tasks-test
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks import report
from benchmarks.fidelity import load_clips
from world_model.checkpoint import load_world
from world_model.intervals import members
from world_model.reward import RewardHeads, check_fit, heads_of, read_heads
from world_model.training.reward import chances_of
from world_model.training.reward_data import Judged, choose_cases, generated_runs, true_runs
from world_model.training.reward_scores import auroc, calibration_error, outcomes
from world_model.world import World

STARTS, QUICK_STARTS = 300, 64
HORIZON, CONTEXT = 24, 16  # frames that are judged, and that a clip has beside them to choose from
BANDS = ((1, 4), (5, 8), (9, 16), (17, 24))  # steps after the start
RESAMPLES = 500  # of all measures together
MEASURES = ("precision", "recall", "auroc", "correlation", "calibration error")


@dataclass(frozen=True)
class Told:
    """What the heads say of one task in ``N`` runs of ``T`` steps, and the truth."""

    chances: np.ndarray  # float [N, T]
    rewards: np.ndarray  # float [N, T]
    counted: np.ndarray  # bool [N, T]
    threshold: float

    def of(self, runs: np.ndarray) -> Told:
        """Some of the runs, by number."""
        return Told(self.chances[runs], self.rewards[runs], self.counted[runs], self.threshold)

    def within(self, first: int, last: int) -> Told:
        """The same with nothing but these steps counted."""
        steps = np.arange(self.counted.shape[1])
        return Told(self.chances, self.rewards, self.counted & (first <= steps) & (steps <= last), self.threshold)

    def measures(self) -> dict[str, float]:
        """All `MEASURES`; nan where one has nothing to measure."""
        events = self.rewards > 0
        found = outcomes(self.chances, events, self.counted, self.threshold)
        chances, rewards, events = (x[self.counted] for x in (self.chances, self.rewards, events))
        varied = len(chances) > 1 and chances.std() > 0 and rewards.std() > 0
        correlation = float(np.corrcoef(chances, rewards)[0, 1]) if varied else float("nan")
        error = calibration_error(chances, events) if len(chances) else float("nan")
        return dict(
            zip(MEASURES, (found.precision, found.recall, auroc(chances, events), correlation, error), strict=True)
        )


def told(heads: RewardHeads, runs: Judged) -> dict[str, Told]:
    """What the heads say, by task."""
    chances, rewards, counted = chances_of(heads, runs), runs.rewards.numpy(), runs.counted.numpy()
    return {
        task: Told(chances[..., k], rewards[..., k], counted[..., k], heads.config.thresholds[k])
        for k, task in enumerate(heads.tasks)
    }


def intervals(said: Told, levels: Sequence[object], seed: int) -> dict[str, report.Interval]:
    """Every measure with its interval over levels, one label per run; nan where there is nothing to measure."""
    together = members(levels)
    rng = np.random.default_rng(seed)
    drawn = [
        said.of(np.concatenate([together[k] for k in rng.integers(len(together), size=len(together))])).measures()
        for _ in range(RESAMPLES)
    ]
    whole = said.measures()
    return {name: _interval(whole[name], np.array([one[name] for one in drawn]), len(levels)) for name in MEASURES}


def _interval(value: float, drawn: np.ndarray, count: int) -> report.Interval:
    return report.percentile_interval(value, drawn[np.isfinite(drawn)], count)


def judged_kinds(heads: RewardHeads, true: Judged, generated: Judged) -> dict[str, dict[str, Told]]:
    """By kind of picture and task: the ceiling, what counts, and the floor."""
    says = told(heads, generated)
    half = len(generated) // 2
    floor = {
        task: Told(np.roll(one.chances, half, axis=0), one.rewards, one.counted, one.threshold)
        for task, one in says.items()
    }
    return {"true frames (ceiling)": told(heads, true), "generated": says, "another clip (floor)": floor}


def load_heads(world: World, file: Path | None) -> RewardHeads:
    """The given heads, or the world's own.

    Raises:
        ValueError: when there are none, or they belong to another codec.
    """
    if file is not None:
        heads = read_heads(file)
        check_fit(heads, world, file)
        return heads.to(world.device)
    heads = heads_of(world)
    if heads is None:
        raise ValueError(f"the world {world.name!r} has no reward heads; train some with `wp2 train reward`")
    return heads


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    if settings.quick:
        settings.starts = min(settings.starts, QUICK_STARTS)
    report.require_positive(settings, "starts")
    world = load_world(settings.world).requires_grad_(False)
    heads = load_heads(world, settings.heads)
    frames = HORIZON + CONTEXT
    store = load_clips(settings.data, settings.starts, frames, world.config.video.height, settings.seed, play="tasks")
    generator = torch.Generator().manual_seed(settings.seed)
    cases = choose_cases(store, heads.tasks, HORIZON, generator)[: settings.starts]
    true = true_runs(world, cases, heads.tasks)
    kinds = judged_kinds(heads, true, generated_runs(world, cases, heads.tasks, settings.seed))
    levels = [str(case.clip.meta.get("level_seed", number)) for number, case in enumerate(cases)]

    all_steps = {
        (kind, task): intervals(one, levels, settings.seed) for kind, of in kinds.items() for task, one in of.items()
    }
    by_band = {
        (kind, task, band): intervals(one.within(*band), levels, settings.seed)
        for kind in list(kinds)[:2]
        for task, one in kinds[kind].items()
        for band in BANDS
    }
    print(f"\nworld {world.name!r}, {len(cases)} clips of {len(set(levels))} held-out levels, {HORIZON} steps each\n")
    print_tables(kinds, all_steps, by_band)
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if settings.json:
        named = {"all steps": all_steps, "by band": by_band}
        results = {name: {" / ".join(map(str, key)): value for key, value in of.items()} for name, of in named.items()}
        report.write_json(settings.json, settings, results)
    if settings.plot:
        report.plot(settings.plot, panels(by_band), "steps after the start", logarithmic=False)


def print_tables(kinds: dict, all_steps: dict, by_band: dict) -> None:
    """Every task over all steps, and generated pictures beside true ones by how long they have been generated."""
    rows = []
    for (kind, task), found in all_steps.items():
        one = kinds[kind][task]
        events = int(((one.rewards > 0) & one.counted).sum())
        rows.append([task, kind, str(events), *(found[name].text(2) for name in MEASURES)])
    rows.sort(key=lambda row: row[0])
    print(report.markdown_table(["task", "pictures", "events", *MEASURES], rows), end="\n\n")
    rows = [
        [task, kind, f"{band[0]}-{band[1]}", *(found[name].text(2) for name in MEASURES[:3])]
        for (kind, task, band), found in by_band.items()
    ]
    rows.sort(key=lambda row: row[0])
    print(report.markdown_table(["task", "pictures", "steps", *MEASURES[:3]], rows))


def panels(by_band: dict) -> dict[str, list[report.Curve]]:
    """AUROC and recall of every task by horizon."""
    return {
        name: report.curves(
            {
                (f"{task}, {kind.split()[0]}", (band[0] + band[1]) / 2): found[name]
                for (kind, task, band), found in by_band.items()
                if np.isfinite(found[name].mean)
            }
        )
        for name in ("auroc", "recall")
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--starts", type=int, default=STARTS, help="clips, at most (default: %(default)s)")
    parser.add_argument("--data", type=Path, help="a clip store of held-out levels (default: record one)")
    parser.add_argument("--heads", type=Path, help="a file of reward heads (default: the world's own)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
