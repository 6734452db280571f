"""Does the generated world change as the true game does when an event's caption says so?

Every case is a pair of true twins in a level that no training saw: the same frames and actions, once without an event
and once with it. The world begins with the true frames before the event and gets the true actions; then it generates
the frames without an event, and again from the same noise with the event's caption, so that what differs between its
two videos is what the caption did. Of that change two things are asked, in place of the two scores, instruction
adherence and execution accuracy from 0 to 4, that a judge gives in the paper:

  adherence  does a classifier of true twins (benchmarks/event_classifier.py) see this kind of event in it?
             The share of cases in which the kind is its first answer of 21, or among the first three;
  execution  does it look like the true change? The cosine between the two as pictures, the mean over the frames
             in which the true change can be seen. No caption tells where an object appears, so that a right object
             in another place counts as nothing here.

Beside the event's caption stand

  wrong caption   that of an event of another category: it must be worse, or the world does not listen;
  other noise     no event, but other noise: what the classifier makes of chance differences;
  floor           the last true frame, repeated in both videos; chance names a right kind in 1 of 20 cases;
  true twins      what the classifier says of the true change;
  ceiling         true twins, encoded and decoded: what the codec leaves of the true change.

The scores put adherence and execution on the paper's scale: 4 at the ceiling, 0 at chance (for execution: at cosine 0)
or at the higher of wrong caption and other noise, whichever is more. The paper's "environment and objects" are our
environmental transitions and object additions or removals, its "complex" events our complex interactions. There are as
many cases of each kind. Intervals are 95 % bootstrap intervals over levels.

examples:
  python -m benchmarks.events --quick
  python -m benchmarks.events --per-kind 10 --json results/events.json --plot results/events.png
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from benchmarks import fidelity, report
from benchmarks.event_classifier import EventClassifier, classify, is_among, load_classifier
from benchmarks.twins import HORIZON, Twins, load_twins
from world_model.checkpoint import load_world
from world_model.data.clips import Clip
from world_model.data.doom.events import BUILDERS, CATEGORIES, INTERACTION, OBJECTS_CHANGE, TRANSITION
from world_model.world import World

QUICK_PER_KIND = 2
GROUPS = {
    "environment and objects": (TRANSITION, OBJECTS_CHANGE),
    "complex": (INTERACTION,),
    "all": CATEGORIES,
}
EVENT, WRONG, NOISE = "event caption", "wrong caption", "no event, other noise"
FLOOR, TRUE, CEILING = "repeat last frame (floor)", "true twins", "true twins through the codec (ceiling)"
DIFFERENCES = {f"{EVENT} - {WRONG}": (EVENT, WRONG), f"{EVENT} - {NOISE}": (EVENT, NOISE)}
FIRST, FIRST_THREE, EXECUTION = "adherence, first answer", "adherence, first three", "execution, cosine"
CHANCE = {FIRST: 1 / len(BUILDERS), FIRST_THREE: 3 / len(BUILDERS), EXECUTION: 0.0}
BEST_SCORE = 4.0
VISIBLE = 12  # grey levels that a true change must have somewhere in a frame for the frame to count


@dataclass(frozen=True)
class Case:
    """True twins, and an event of another category."""

    twins: Twins
    wrong: Twins


def choose_cases(twins: Sequence[Twins], per_kind: int, seed: int) -> list[Case]:
    """``per_kind`` pairs of every kind, each beside the event of a random one of another category.

    Raises:
        ValueError: when there are too few.
    """
    chosen = []
    for kind in BUILDERS:
        pairs = [pair for pair in twins if pair.kind == kind][:per_kind]
        if len(pairs) < per_kind:
            raise ValueError(f"there are {len(pairs)} twins of {kind!r} and {per_kind} are needed; lower --per-kind")
        chosen += pairs
    rng = np.random.default_rng(seed)
    others = {c: [pair for pair in chosen if pair.category != c] for c in CATEGORIES}
    return [Case(pair, others[pair.category][rng.integers(len(others[pair.category]))]) for pair in chosen]


def with_event(clip: Clip, event: dict, context: int) -> Clip:
    """The clip with an event's caption in force, from frame ``context`` on and for as long as that event takes."""
    captions = [clip.caption_at(t) for t in range(len(clip.frames))]
    told = range(context, min(context + event["frames"], len(captions)))
    for t in told:
        captions[t] = captions[t].replace(event=event["caption"])
    return replace(clip, captions=tuple(enumerate(captions)))


def videos(world: World, cases: Sequence[Case], first: int, settings: argparse.Namespace) -> dict[str, list[Tensor]]:
    """Per contestant, frames ``[B, HORIZON, H, W, 3]`` without and with what it takes for the event."""
    context = settings.context
    stream = world.stream(len(cases), sampling_steps=settings.steps)
    rows = np.stack([case.twins.without.actions for case in cases])

    def generate(clips: list[Clip], noise: int) -> Tensor:
        starts = [fidelity.Case(clip, clip.actions, case.twins.level) for clip, case in zip(clips, cases, strict=True)]
        seeds = [(2 * settings.seed + noise) * 1_000_003 + first + slot for slot in range(len(cases))]
        return fidelity.generate(stream, starts, rows, context, seeds)

    plain = [case.twins.without for case in cases]
    without = generate(plain, noise=0)
    true = [torch.from_numpy(np.stack(side)) for side in zip(*(_whole(case.twins) for case in cases), strict=True)]
    last = true[0][:, context - 1 : context].expand(-1, HORIZON, -1, -1, -1)
    told = [with_event(c.twins.without, c.twins.shown.meta["event"], context) for c in cases]
    mistold = [with_event(c.twins.without, c.wrong.shown.meta["event"], context) for c in cases]
    return {
        EVENT: [without, generate(told, noise=0)],
        WRONG: [without, generate(mistold, noise=0)],
        NOISE: [without, generate(plain, noise=1)],
        FLOOR: [last, last],
        TRUE: [frames[:, context:] for frames in true],
        CEILING: [fidelity.reconstruct(world, frames, context) for frames in true],
    }


def _whole(twins: Twins) -> tuple[np.ndarray, np.ndarray]:
    return twins.without.frames, twins.shown.frames


def execution(change: Sequence[Tensor], true: Sequence[Tensor]) -> Tensor:
    """How much one change is like the true one, frame by frame: cosine ``[B, T]`` in [-1, 1].

    A change is a pair of uint8 videos ``[B, T, H, W, 3]``, without and with the event. No change counts 0, and a frame
    in which the true change cannot be seen is NaN.
    """
    own, wanted = ((shown.float() - without.float()).flatten(2) for without, shown in (change, true))
    cosine = functional.cosine_similarity(own, wanted, dim=-1)
    return torch.where(wanted.abs().amax(-1) > VISIBLE, cosine, torch.nan)


def compare(
    world: World, model: EventClassifier, cases: Sequence[Case], settings: argparse.Namespace
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Per measure and contestant, values ``[cases]``; and the execution of each frame, ``[cases, HORIZON]``."""
    answers: dict[str, list[Tensor]] = {}
    likeness: dict[str, list[Tensor]] = {}
    for first in tqdm(range(0, len(cases), settings.batch), unit="batch", desc="generating"):
        pairs = videos(world, cases[first : first + settings.batch], first, settings)
        for name, pair in pairs.items():
            answers.setdefault(name, []).append(classify(model, *pair))
            likeness.setdefault(name, []).append(execution(pair, pairs[TRUE]))
    kinds = [case.twins.kind for case in cases]
    logits = {name: torch.cat(parts) for name, parts in answers.items()}
    frames = {name: torch.cat(parts).numpy() for name, parts in likeness.items()}
    values = {
        FIRST: {name: is_among(table, kinds, 1).astype(float) for name, table in logits.items()},
        FIRST_THREE: {name: is_among(table, kinds, 3).astype(float) for name, table in logits.items()},
        EXECUTION: {name: np.nanmean(table, axis=1) for name, table in frames.items()},
    }
    return values, frames


def score(
    values: dict[str, np.ndarray], chance: float, members: np.ndarray, levels: np.ndarray, seed: int
) -> report.Interval:
    """A measure of the event caption on the paper's scale: 0 at chance or at the higher control where that is more,
    and 4 at the ceiling. All are drawn again together."""
    columns = np.stack([values[name] for name in (EVENT, WRONG, NOISE, CEILING)], axis=1)[members]

    def scaled(rows: np.ndarray) -> np.ndarray:
        own, *controls, ceiling = rows.mean(axis=0)
        floor = max(chance, *controls)
        return BEST_SCORE * np.clip((own - floor) / max(ceiling - floor, 1e-9), 0, 1)

    return report.bootstrap(columns, seed, levels[members], scaled)


def summarise(
    values: dict[str, dict[str, np.ndarray]], cases: Sequence[Case], seed: int
) -> dict[str, dict[str, dict[str, report.Interval]]]:
    """Per measure, per row of its table and per group, an interval."""
    levels = np.array([case.twins.level for case in cases])
    groups = {name: np.array([c.twins.category in group for c in cases]) for name, group in GROUPS.items()}
    tables = {}
    for measure, by in values.items():
        paired = {name: by[one] - by[two] for name, (one, two) in DIFFERENCES.items()}
        tables[measure] = {
            name: {group: report.bootstrap(v[m], seed, levels[m]) for group, m in groups.items()}
            for name, v in (by | paired).items()
        }
        tables[measure]["score of the event caption, 0 to 4"] = {
            group: score(by, CHANCE[measure], m, levels, seed) for group, m in groups.items()
        }
    return tables


def by_kind(values: dict[str, dict[str, np.ndarray]], cases: Sequence[Case]) -> dict[str, dict[str, dict[str, float]]]:
    """Per kind and measure, the means of the event caption and of the ceiling."""
    kinds = np.array([case.twins.kind for case in cases])
    return {
        kind: {
            measure: {name: float(by[name][kinds == kind].mean()) for name in (EVENT, CEILING)}
            for measure, by in values.items()
        }
        for kind in BUILDERS
    }


def curves(frames: dict[str, np.ndarray], cases: Sequence[Case], seed: int) -> list[report.Curve]:
    """Execution over the frames since the event began, where the true change shows in any case."""
    levels = np.array([case.twins.level for case in cases])
    shows = ~np.isnan(frames[TRUE])
    positions = [t for t in range(HORIZON) if shows[:, t].any()]
    return [
        report.Curve(
            name,
            [t + 1 for t in positions],
            [report.bootstrap(frames[name][shows[:, t], t], seed, levels[shows[:, t]]) for t in positions],
        )
        for name in (EVENT, WRONG, NOISE, CEILING)
    ]


def check(settings: argparse.Namespace, world: World) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    if settings.per_kind < 1:
        raise ValueError(f"--per-kind is {settings.per_kind}; give at least 1")
    fidelity.check(argparse.Namespace(**vars(settings), starts=1, horizon=HORIZON), world)


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    world = load_world(settings.world)
    if settings.quick:
        settings.per_kind = min(settings.per_kind, QUICK_PER_KIND)
    check(settings, world)
    model = load_classifier()
    twins = load_twins(
        settings.data,
        split=fidelity.SPLIT,
        per_kind=settings.per_kind,
        context=settings.context,
        size=world.config.video.height,
        seed=settings.seed,
    )
    cases = choose_cases(twins, settings.per_kind, settings.seed)
    values, frames = compare(world, model, cases, settings)
    tables = summarise(values, cases, settings.seed)

    right = report.bootstrap(values[FIRST][TRUE], settings.seed, [case.twins.level for case in cases])
    print(f"\nthe classifier names {right.text(2)} of the events of true twins\n")
    print(f"{len(cases)} cases, {settings.per_kind} of each kind, in {len({c.twins.level for c in cases})} held-out")
    print(f"levels, {settings.context} true frames before each event and {HORIZON} generated ones from it on,")
    print(f"world {world.name!r}, seed {settings.seed}; mean and 95 % interval\n")
    for measure, table in tables.items():
        rows = [[name, *(interval.text(2) for interval in line.values())] for name, line in table.items()]
        rows.insert(-1, ["chance", *[f"{CHANCE[measure]:.2f}"] * len(GROUPS)])
        print(report.markdown_table([measure, *GROUPS], rows), end="\n\n")
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(settings.json, settings, {**tables, "chance": CHANCE, "by kind": by_kind(values, cases)})
    if settings.plot:
        panels = {EXECUTION: curves(frames, cases, settings.seed)}
        report.plot(settings.plot, panels, "frames since the event began", logarithmic=False)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--per-kind", type=int, default=10, help="cases of every event kind (default: %(default)s)")
    parser.add_argument("--context", type=int, default=8, help="true frames before the event (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="network evaluations per chunk (default: the world's)")
    parser.add_argument("--batch", type=int, default=16, help="rollouts side by side (default: %(default)s)")
    parser.add_argument("--data", type=Path, help="a store of twins of held-out levels (default: record one)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
