"""Does the generated world do what it is told?

An inverse-dynamics model (`benchmarks.inverse_dynamics`) estimates from pictures what moved the world, and the estimate
is compared with what was commanded: the rotation error in degrees and as share of the commanded rotation, and the share
of frames whose longitudinal and lateral movement are both right. This is how the WorldPlay2 paper measures action
control (Table 6). The world begins with true frames of levels that no training saw and is driven with the recorded
controls, then with one control at a time. Beside it stand

  ceiling   the same measure on the true game's frames: the yardstick's own errors, and walls in the way;
  codec     the true frames, encoded and decoded;
  shuffled  the generated frames against the commands of another recording;
  floor     the last true frame, repeated.

Intervals are 95 % bootstrap intervals over levels.

examples:
  python -m benchmarks.controls --quick
  python -m benchmarks.controls --json results/controls.json --plot results/controls.png
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import fidelity, inverse_dynamics, probes, report
from benchmarks.fidelity import Case
from benchmarks.inverse_dynamics import InverseDynamics
from benchmarks.probes import Probe
from world_model.checkpoint import load_world
from world_model.controls import JUMP, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW
from world_model.data.clips import Clip
from world_model.world import World

WANTED_ROTATION, WANTED_TRANSLATION = 0.20, 0.95  # error / commanded at most, accuracy / ceiling at least
FIRST_SPAN = 8  # frames; each further span ends at twice the frames
CEILING, CODEC, GENERATED = "true frames (ceiling)", "true frames through the codec", "generated"
SHUFFLED, FLOOR = "generated, shuffled commands", "repeat last frame (floor)"
RATIO = "generated / ceiling"
ROTATION, DEGREES = "rotation error / commanded rotation", "rotation error (degrees)"
TRANSLATION, VIEW = "translation accuracy", "perspective accuracy"

# A measure turns estimated and commanded rows [..., 6] into fractions [..., 2]: numerator and denominator per frame.
# Its value over many frames is the ratio of their sums.
Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _fractions(numerator: np.ndarray, denominator: np.ndarray | float = 1.0) -> np.ndarray:
    return np.stack(np.broadcast_arrays(np.asarray(numerator, float), denominator), axis=-1)


def relative_rotation(estimated: np.ndarray, commanded: np.ndarray) -> np.ndarray:
    """Degrees of wrong rotation over degrees of commanded rotation, yaw and pitch together."""
    error = inverse_dynamics.rotation_error(estimated, commanded)
    return _fractions(error, inverse_dynamics.rotation_error(commanded, np.zeros_like(commanded)))


def right_class(column: int) -> Measure:
    """The share of frames whose discrete column is estimated as commanded."""
    return lambda estimated, commanded: _fractions((estimated == commanded)[..., column])


def translation(estimated: np.ndarray, commanded: np.ndarray) -> np.ndarray:
    """The share of frames whose longitudinal and lateral movement are both right."""
    return _fractions(inverse_dynamics.same_translation(estimated, commanded))


def jumps_seen(estimated: np.ndarray, commanded: np.ndarray) -> np.ndarray:
    """The share of commanded jumps that are seen."""
    return _fractions(estimated[..., JUMP] * commanded[..., JUMP], commanded[..., JUMP])


MEASURES: dict[str, tuple[Measure, int]] = {  # of recorded controls, with decimals
    DEGREES: (lambda estimated, commanded: _fractions(inverse_dynamics.rotation_error(estimated, commanded)), 2),
    ROTATION: (relative_rotation, 3),
    TRANSLATION: (translation, 3),
    VIEW: (right_class(PERSPECTIVE), 3),
}
PROBED: dict[int | None, tuple[str, Measure]] = {  # column of a single control -> measure
    YAW: (ROTATION, relative_rotation),
    PITCH: (ROTATION, relative_rotation),
    LONGITUDINAL: (TRANSLATION, translation),
    LATERAL: (TRANSLATION, translation),
    PERSPECTIVE: (VIEW, right_class(PERSPECTIVE)),
    JUMP: ("jumps seen", jumps_seen),
    None: (TRANSLATION, translation),
}


def ratio(fractions: np.ndarray) -> float:
    """The ratio of sums of ``[n, 2]``; 0 where nothing was commanded."""
    numerator, denominator = fractions.sum(0)
    return numerator / max(denominator, 1e-9)


def ratio_of_ratios(fractions: np.ndarray) -> float:
    """`ratio` of the first two of ``[n, 4]`` over `ratio` of the last two."""
    return ratio(fractions[:, :2]) / max(ratio(fractions[:, 2:]), 1e-9)


def estimate(
    world: World, yardstick: InverseDynamics, cases: Sequence[Case], settings: argparse.Namespace
) -> dict[str, np.ndarray]:
    """By contestant, the estimated rows ``[cases, horizon, 6]`` of the frames after the context."""
    context, horizon = settings.context, len(cases[0].clip.frames) - settings.context
    rows: dict[str, list[np.ndarray]] = {CEILING: [], CODEC: [], GENERATED: [], FLOOR: []}
    bar = tqdm(total=len(cases) * horizon, unit="frame", desc="generating")
    for first in range(0, len(cases), settings.batch):
        batch = cases[first : first + settings.batch]
        true = torch.from_numpy(np.stack([case.clip.frames for case in batch]))
        last = true[:, context - 1 : context]
        stream = world.stream(len(batch), sampling_steps=settings.steps)
        seeds = [settings.seed * 1_000_003 + first + slot for slot in range(len(batch))]
        commanded = np.stack([case.clip.actions for case in batch])
        videos = {
            CEILING: true[:, context - 1 :],
            CODEC: fidelity.reconstruct(world, true, context - 1),
            GENERATED: torch.cat([last, fidelity.generate(stream, batch, commanded, context, seeds)], dim=1),
            FLOOR: last.expand(-1, 1 + horizon, -1, -1, -1),
        }
        for name, frames in videos.items():
            rows[name].append(yardstick.estimate(frames).numpy())
        bar.update(len(batch) * horizon)
    bar.close()
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def interval(fractions: np.ndarray, levels: Sequence[str], seed: int) -> report.Interval:
    """The value and interval of fractions ``[cases, frames, 2]``."""
    return report.bootstrap(fractions.sum(1), seed, levels, ratio)


def of_ceiling(fractions: dict[str, np.ndarray], levels: Sequence[str], seed: int) -> report.Interval:
    """The generated frames' value over the true frames', of fractions ``[cases, frames, 2]`` by contestant."""
    both = np.concatenate([fractions[GENERATED].sum(1), fractions[CEILING].sum(1)], axis=1)
    return report.bootstrap(both, seed, levels, ratio_of_ratios)


def spans(horizon: int) -> dict[str, slice]:
    """All frames, then 1-8, 9-16, 17-32, ... as far as the horizon goes."""
    edges = [0] + [FIRST_SPAN * 2**k for k in range(32) if FIRST_SPAN * 2**k < horizon] + [horizon]
    parts = zip(edges, edges[1:], strict=False)
    return {"all frames": slice(0, horizon)} | {f"{low + 1}-{high}": slice(low, high) for low, high in parts}


def recorded_controls(
    world: World, yardstick: InverseDynamics, cases: Sequence[Case], settings: argparse.Namespace
) -> dict[str, dict[str, dict[str, report.Interval]]]:
    """By measure, contestant and span of frames: how well recorded controls are followed."""
    estimated = estimate(world, yardstick, cases, settings)
    commanded, shuffled = (
        np.stack(rows)[:, settings.context :]
        for rows in ([case.clip.actions for case in cases], [case.shuffled for case in cases])
    )
    levels = [case.level for case in cases]
    results: dict[str, dict[str, dict[str, report.Interval]]] = {}
    for name, (measure, _) in MEASURES.items():
        fractions = {rival: measure(rows, commanded) for rival, rows in estimated.items()}
        fractions[SHUFFLED] = measure(estimated[GENERATED], shuffled)
        results[name] = {rival: {} for rival in (CEILING, CODEC, GENERATED, SHUFFLED, FLOOR, RATIO)}
        for span, frames in spans(commanded.shape[1]).items():
            part = {rival: values[:, frames] for rival, values in fractions.items()}
            for rival, values in part.items():
                results[name][rival][span] = interval(values, levels, settings.seed)
            results[name][RATIO][span] = of_ceiling(part, levels, settings.seed)
    return results


def single_controls(
    world: World, yardstick: InverseDynamics, clips: dict[Probe, list[Clip]], settings: argparse.Namespace
) -> dict[str, dict[str, report.Interval]]:
    """By probe and contestant: how well one control at a time is followed."""
    cases = [Case(clip, clip.actions, str(clip.meta["level_seed"])) for of_one in clips.values() for clip in of_one]
    estimated = estimate(world, yardstick, cases, settings)
    results, first = {}, 0
    for probe, of_one in clips.items():
        chosen = slice(first, first + len(of_one))
        first += len(of_one)
        commanded = np.stack([clip.actions for clip in of_one])[:, settings.context :]
        _, measure = PROBED[probe.column]
        fractions = {rival: measure(rows[chosen], commanded) for rival, rows in estimated.items()}
        levels = [case.level for case in cases[chosen]]
        results[probe.name] = {rival: interval(values, levels, settings.seed) for rival, values in fractions.items()}
    return results


def print_recorded(results: dict[str, dict[str, dict[str, report.Interval]]]) -> None:
    """One table per measure, and how the results stand to what is wanted."""
    for measure, (_, decimals) in MEASURES.items():
        rows = [[name, *(i.text(decimals) for i in line.values())] for name, line in results[measure].items()]
        print(report.markdown_table([measure, *results[measure][GENERATED]], rows), end="\n\n")
    rotation, share = results[ROTATION][GENERATED]["all frames"], results[TRANSLATION][RATIO]["all frames"]
    print(f"rotation error: {rotation.mean:.1%} of the commanded rotation (wanted: at most {WANTED_ROTATION:.0%})")
    print(f"translation accuracy: {share.mean:.1%} of the ceiling (wanted: at least {WANTED_TRANSLATION:.0%})\n")


def print_single(results: dict[str, dict[str, report.Interval]]) -> None:
    """One row per single control."""
    rivals = list(next(iter(results.values())))
    columns = {probe.name: probe.column for probe in probes.PROBES}
    rows = [
        [name, PROBED[columns[name]][0], *(line[rival].text(2) for rival in rivals)] for name, line in results.items()
    ]
    print(report.markdown_table(["only this control", "measure", *rivals], rows), end="\n\n")


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    world, yardstick = load_world(settings.world), inverse_dynamics.load()
    if settings.quick:
        settings.starts = min(settings.starts, fidelity.QUICK_STARTS)
        settings.horizon = min(settings.horizon, fidelity.QUICK_HORIZON)
    fidelity.check(settings, world)
    frames, size = settings.context + settings.horizon, world.config.video.height
    store = fidelity.load_clips(settings.data, settings.starts, frames, size, settings.seed)
    cases = fidelity.choose_cases(store, settings.starts, frames)
    levels = len({case.level for case in cases})
    print(f"\n{len(cases)} starts in {levels} held-out levels, {settings.context} true frames before each,")
    print(f"world {world.name!r}, seed {settings.seed}; value and 95 % interval over generated frames\n")
    recorded = recorded_controls(world, yardstick, cases, settings)
    print_recorded(recorded)
    results: dict[str, object] = {"recorded controls": recorded}
    if importlib.util.find_spec("vizdoom") is None:
        print("single controls are left out: their true frames need ViZDoom (pip install worldplay2-gym[doom])\n")
    else:
        n = world.config.chunk_latents
        length = -(-probes.FRAMES // n) * n
        clips = probes.record(settings.starts, settings.context, length, size, settings.seed)
        results["single controls"] = single = single_controls(world, yardstick, clips, settings)
        print_single(single)
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(settings.json, settings, results)
    if settings.plot:
        report.plot(settings.plot, curves(recorded), "generated frames")


def curves(results: dict[str, dict[str, dict[str, report.Interval]]]) -> dict[str, list[report.Curve]]:
    """The two measures that something is wanted of, over the spans' ends."""
    panels: dict[str, list[report.Curve]] = {}
    for measure in (ROTATION, TRANSLATION):
        lines = {name: list(line.items())[1:] for name, line in results[measure].items() if name != RATIO}
        panels[measure] = [
            report.Curve(name, [int(span.split("-")[1]) for span, _ in line], [value for _, value in line])
            for name, line in lines.items()
        ]
    return panels


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    report.add_rollout_options(parser, starts=64, horizon=64)
    parser.add_argument("--context", type=int, default=8, help="true frames before them (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
