"""What is it worth that a caption is structured?

One world learns from captions {scene, character, event}, each encoded by itself, and another from the same captions
mixed into one text. All else is the same: recordings, codec, random initial weights, what every training step draws,
budget, room for a text. This is the ablation of the WorldPlay2 paper's Table 6, whose bidirectional model reaches a
rotation error of 0.168 with structured and 0.478 with mixed captions, and a translation accuracy of 98.3 and 88.9 %.

Here both worlds train the chunk-causal stage from random weights, because that is what a stream rolls out. Then both
play the same starts of levels that no training saw, with the recorded controls and the same seeds:

  rotation, translation   by an inverse-dynamics model, see `benchmarks.controls`;
  PSNR                    after 1, 4 and 16 frames, against the true game;
  events                  the same frames generated with and without the event in the caption: the share of pixels that
                          it changes in the frame that differs most (without a word about it, none), and by how many
                          dB it brings the picture closer to the true event.

Ceilings are the true frames, and the true frames through the codec; the floor is the last true frame, repeated. An
event has neither. Intervals are 95 % bootstrap intervals over levels; they do not tell what another training seed would
change (repeat with --seed and --runs). A text gets the same few tokens however much it holds, so a mixed caption has
fewer tokens that say something.

examples:
  python -m benchmarks.captions --quick
  python -m benchmarks.captions --data data/train --clips 2000 --minutes 20 --json results/captions.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import controls, fidelity, inverse_dynamics, report
from benchmarks.caption_arms import (
    ARMS,
    MIXED,
    STRUCTURED,
    Training,
    captions_of,
    check_captions,
    rewrite,
    starting_world,
    train_arm,
)
from benchmarks.controls import CEILING, CODEC, DEGREES, FLOOR, ROTATION, TRANSLATION
from benchmarks.fidelity import Case
from benchmarks.inverse_dynamics import InverseDynamics
from world_model.checkpoint import load_world
from world_model.controls import NOTHING
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore
from world_model.training.loop import Budget
from world_model.world import World

MINUTES, CLIPS = 20.0, 2000  # of training of each arm; of the recording that is made when none is given
QUICK_MINUTES, QUICK_CLIPS, QUICK_STARTS = 0.4, 48, 16
CAPTION_BYTES = 384  # the longest mixed caption of 3,200 recorded clips has 358
RECORDED_STARTS, RECORDED_FRAMES = 64, 72  # held-out levels and frames of a clip: the recording of `fidelity`
TRAINING_FRAMES = 64
PSNR = "PSNR (dB)"
AFTER, PSNR_AFTER = " after ", (1, 4, 16)  # frames
CHANGED, CLOSER = "pixels changed by the event (%)", "closer to the true event (dB)"
PIXEL_CHANGE = 12  # grey levels in any channel that count as changed, as for the recorder of events
DIFFERENCE = f"{STRUCTURED} - {MIXED}"
COLUMNS = (STRUCTURED, MIXED, DIFFERENCE, CEILING, CODEC, FLOOR)
DECIMALS = {name: controls.MEASURES[name][1] for name in (DEGREES, ROTATION, TRANSLATION)}
DECIMALS |= {PSNR: 2, CHANGED: 1, CLOSER: 2}

# By contestant, fractions [cases, frames, 2] of one measure, numerator and denominator, as in `benchmarks.controls`.
Fractions = dict[str, np.ndarray]


def play(world: World, cases: Sequence[Case], settings: argparse.Namespace) -> Tensor:
    """Generated frames ``[cases, horizon, H, W, 3]`` under each case's own controls, after its true context."""
    sampling = fidelity.Sampling(settings.seed, settings.sampling_steps, settings.batch)
    return fidelity.play(world, cases, fidelity.true_rows(cases), settings.context, sampling)


def written(cases: Sequence[Case], arm: str, events: bool = True) -> list[Case]:
    """The cases with their captions as ``arm`` writes them, or as it writes them when nothing happens."""
    write = ARMS[arm] if events else lambda caption: ARMS[arm](caption.replace(event=NOTHING))
    return [Case(rewrite(case.clip, write), case.shuffled, case.level) for case in cases]


def steer(
    worlds: dict[str, World], yardstick: InverseDynamics, cases: Sequence[Case], settings: argparse.Namespace
) -> dict[str, Fractions]:
    """By measure and contestant, how well recorded controls are followed and how true the pictures are."""
    context = settings.context
    true = fidelity.true_frames(cases)
    last, ahead = true[:, context - 1 : context], true[:, context:]
    commanded = fidelity.true_rows(cases)[:, context:]
    videos = {arm: play(world, written(cases, arm), settings) for arm, world in worlds.items()}
    videos |= {FLOOR: last.expand_as(ahead), CODEC: fidelity.reconstruct(worlds[STRUCTURED], true, context)}
    videos[CEILING] = ahead  # last: it has no PSNR, and the plot's panels share their colours
    results: dict[str, Fractions] = {measure: {} for measure in (DEGREES, ROTATION, TRANSLATION, PSNR)}
    for name, frames in videos.items():
        estimated = yardstick.estimate(torch.cat([last, frames], dim=1)).numpy()
        for measure in (DEGREES, ROTATION, TRANSLATION):
            results[measure][name] = controls.MEASURES[measure][0](estimated, commanded)
        if name != CEILING:  # the truth against itself
            results[PSNR][name] = _fractions(report.psnr(frames, ahead))
    return results


def event_cases(store: ClipStore, count: int, context: int, horizon: int) -> list[Case]:
    """Up to ``count`` windows whose event begins with the first frame after the context, evenly spread.

    Raises:
        ValueError: when there is none.
    """
    found = []
    for index in range(len(store)):
        changes = store[index].captions
        starts = [first for first, caption in changes if caption.event != NOTHING]
        if starts and context <= starts[0] <= store.length(index) - horizon:
            clip = store.window(index, starts[0] - context, context + horizon)
            found.append(Case(clip, clip.actions, str(clip.meta.get("level_seed", index))))
    if not found:
        raise ValueError(
            f"{store.path} has no event with {context} frames before it and {horizon} from it on; "
            "record more or longer clips, or lower --context or --horizon"
        )
    count = min(count, len(found))
    return [found[k * len(found) // count] for k in range(count)]


def respond(worlds: dict[str, World], cases: Sequence[Case], settings: argparse.Namespace) -> dict[str, Fractions]:
    """By measure and arm, what the event in a caption does to the frames from its beginning on."""
    true = fidelity.true_frames(cases)[:, settings.context :]
    results: dict[str, Fractions] = {CHANGED: {}, CLOSER: {}}
    for arm, world in worlds.items():
        told, untold = (play(world, written(cases, arm, events), settings) for events in (True, False))
        changed = ((told.int() - untold.int()).abs().amax(dim=-1) > PIXEL_CHANGE).float().mean(dim=(2, 3))
        closer = report.psnr(told, true) - report.psnr(untold, true)
        results[CHANGED][arm] = _fractions(100 * changed.amax(dim=1, keepdim=True))
        results[CLOSER][arm] = _fractions(closer)
    return results


def _fractions(values: Tensor) -> np.ndarray:
    return np.stack([values.numpy(), np.ones(values.shape)], axis=-1)


def difference_of_ratios(fractions: np.ndarray) -> float:
    """The ratio of sums of the first two of ``[n, 4]`` less that of the last two."""
    return controls.ratio(fractions[:, :2]) - controls.ratio(fractions[:, 2:])


def intervals(fractions: Fractions, levels: Sequence[str], seed: int) -> dict[str, report.Interval]:
    """By column, the value of each contestant and the paired difference of the arms."""
    line = {name: controls.interval(values, levels, seed) for name, values in fractions.items()}
    both = np.concatenate([fractions[STRUCTURED].sum(1), fractions[MIXED].sum(1)], axis=1)
    line[DIFFERENCE] = report.bootstrap(both, seed, levels, difference_of_ratios)
    return {name: line[name] for name in COLUMNS if name in line}


def summarise(results: dict[str, Fractions], levels: Sequence[str], seed: int) -> dict[str, dict[str, report.Interval]]:
    """The table's rows: every measure over all frames, PSNR after so many."""
    rows = {name: intervals(values, levels, seed) for name, values in results.items() if name != PSNR}
    for after in PSNR_AFTER if PSNR in results else ():
        at = {name: values[:, after - 1 : after] for name, values in results[PSNR].items()}
        if all(values.size for values in at.values()):
            rows[f"{PSNR}{AFTER}{after}"] = intervals(at, levels, seed)
    return rows


def curves(results: dict[str, Fractions], levels: Sequence[str], seed: int) -> dict[str, list[report.Curve]]:
    """Rotation, translation and PSNR after 1, 2, 4, ... frames."""
    horizon = results[PSNR][STRUCTURED].shape[1]
    shown = [h for h in (2**k for k in range(32)) if h <= horizon]
    return {
        measure: [
            report.Curve(name, shown, [controls.interval(values[:, h - 1 : h], levels, seed) for h in shown])
            for name, values in results[measure].items()
        ]
        for measure in (ROTATION, TRANSLATION, PSNR)
    }


def print_table(rows: dict[str, dict[str, report.Interval]]) -> None:
    """One row per measure; what has no such value gets a dash."""
    cells = []
    for name, line in rows.items():
        decimals = DECIMALS[name.partition(AFTER)[0]]
        cells.append([name, *(line[c].text(decimals) if c in line else "-" for c in COLUMNS)])
    print(report.markdown_table(["captions", *COLUMNS], cells), end="\n\n")


def training_data(settings: argparse.Namespace, size: int) -> tuple[Path, ...]:
    """The given recordings, or one of ``--clips`` clips of training levels, which is made now unless it is there."""
    if settings.data:
        return tuple(settings.data)
    from world_model.data.doom.record import record

    out = Path("data") / f"train-{size}px-{TRAINING_FRAMES}frames-seed{settings.seed}-{settings.clips}clips"
    record(out, clips=settings.clips, frames=TRAINING_FRAMES, size=size, seed=settings.seed, workers=report.cores())
    return (out,)


def check_levels(store: ClipStore) -> None:
    """Raise ValueError for recordings of the levels that both arms are measured in."""
    if store.recipe.get("split") == fidelity.SPLIT:
        raise ValueError(f"{store.path} shows the levels that the arms are measured in; give a store of split train")


def settle(settings: argparse.Namespace) -> Budget:
    """Fill in what was left open, and make a quick run small and a run of its own; the budget of each arm.

    Raises:
        ValueError: for numbers that cannot work, naming the option.
    """
    if settings.clips is not None and settings.clips < 1:
        raise ValueError(f"--clips is {settings.clips}; give at least 1")
    if settings.quick:
        settings.starts, settings.clips = min(settings.starts, QUICK_STARTS), QUICK_CLIPS
        settings.minutes, settings.runs = QUICK_MINUTES, settings.runs / "quick"
    if settings.steps is None and settings.minutes is None:
        settings.minutes = MINUTES
    if settings.clips is None and not settings.data:
        settings.clips = CLIPS
    return Budget(settings.steps, settings.minutes)


def main(settings: argparse.Namespace) -> None:
    """Train both arms, let both play, and print the table."""
    began = time.monotonic()
    budget = settle(settings)
    origin, yardstick = load_world(settings.world), inverse_dynamics.load()
    fidelity.check(settings, origin)
    size, starts = origin.config.video.height, max(settings.starts, RECORDED_STARTS)
    held_out = fidelity.load_clips(settings.test, starts, RECORDED_FRAMES, size, settings.seed)
    cases = fidelity.choose_cases(held_out, settings.starts, settings.context + settings.horizon)
    happening = event_cases(held_out, settings.starts, settings.context, settings.horizon)
    data = training_data(settings, size)
    recordings = JoinedStore(data)
    for store in recordings.stores:
        check_levels(store)
    check_captions(captions_of(held_out) | captions_of(recordings), settings.caption_bytes, origin.config.text.stride)

    start = starting_world(origin, settings.caption_bytes, settings.seed)
    training = Training(start, data, settings.clips, budget, settings.runs)
    trained = {arm: train_arm(arm, training) for arm in ARMS}
    worlds = {arm: load_world(settings.runs / arm / "world") for arm in ARMS}

    levels, seed = [case.level for case in cases], settings.seed
    steered = steer(worlds, yardstick, cases, settings)
    rows = summarise(steered, levels, seed)
    rows |= summarise(respond(worlds, happening, settings), [case.level for case in happening], seed)
    print(f"\n{len(cases)} starts in {len(set(levels))} held-out levels, {settings.context} true frames before each,")
    print(f"{settings.horizon} generated; {len(happening)} events; seed {seed}; value and 95 % interval over levels")
    for arm, progress in trained.items():
        print(f"{arm} captions: {progress.step} steps in {progress.minutes:.1f} minutes")
    if settings.quick:
        print("this quick training shows that the machinery works; its worlds are far from having learned to steer")
    print()
    print_table(rows)
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        counts = {arm: vars(progress) for arm, progress in trained.items()}
        report.write_json(settings.json, settings, {"training": counts, "measures": rows})
    if settings.plot:
        report.plot(settings.plot, curves(steered, levels, seed), "generated frames")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--data", type=Path, nargs="+", help="recordings to train on (default: record one)")
    parser.add_argument("--clips", type=int, help="only the first so many clips of each, or how many to record")
    parser.add_argument("--minutes", type=float, help=f"of training of each arm (default, without --steps: {MINUTES})")
    parser.add_argument("--steps", type=int, help="of training of each arm")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/captions-ablation"), help="folder of the runs (default: %(default)s)"
    )
    parser.add_argument(
        "--caption-bytes", type=int, default=CAPTION_BYTES, help="room for one caption text (default: %(default)s)"
    )
    parser.add_argument("--test", type=Path, help="a clip store of held-out levels (default: record one)")
    parser.add_argument("--starts", type=int, default=64, help="starts, and events at most (default: %(default)s)")
    parser.add_argument("--horizon", type=int, default=16, help="frames to generate (default: %(default)s)")
    parser.add_argument("--context", type=int, default=8, help="true frames before them (default: %(default)s)")
    parser.add_argument("--sampling-steps", type=int, help="network evaluations per chunk (default: the world's)")
    parser.add_argument("--batch", type=int, default=16, help="rollouts side by side (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
