"""How long does the generated world look like the true game?

Both begin with the same frames of levels that no training saw, and get the same controls (action rows, captions).
After 1, 2, 4, ... frames the generated picture is compared with the true one, beside

  floor     the last true frame, repeated;
  ceiling   the true frames, encoded and decoded: what the codec alone costs;
  shuffled  the generated world under camera, movement and jump of another recording: it must be worse, or the
            world does not listen.

Intervals are 95 % bootstrap intervals over levels. PSNR of identical pictures counts as 60 dB.

examples:
  python -m benchmarks.fidelity --quick
  python -m benchmarks.fidelity --starts 64 --horizon 64 --json results/fidelity.json --plot results/fidelity.png
  python -m benchmarks.fidelity --data data/test --world runs/doom/world
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks import report
from world_model.checkpoint import load_world
from world_model.codec import to_uint8, to_unit
from world_model.controls import PERSPECTIVE
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.rollout import WorldStream
from world_model.sampling import Sampler, block_euler
from world_model.world import World

QUICK_STARTS, QUICK_HORIZON = 16, 32
NEAR = 16  # frames up to which the world should be above the floor at every one
SPLIT = "test"
MEASURES = {"PSNR (dB)": (report.psnr, 2), "SSIM": (report.ssim, 3)}
GENERATED, SHUFFLED, FLOOR, CEILING = "generated", "shuffled actions", "repeat last frame (floor)", "codec (ceiling)"
DIFFERENCES = {f"{GENERATED} - {FLOOR}": (GENERATED, FLOOR), f"{GENERATED} - {SHUFFLED}": (GENERATED, SHUFFLED)}


@dataclass(frozen=True)
class Case:
    """One start: a clip of ``context + horizon`` true frames, and other actions for it."""

    clip: Clip
    shuffled: np.ndarray  # float32 [context + horizon, 6]: the same perspective, all else from another case
    level: str


@dataclass(frozen=True)
class Sampling:
    """How frames are generated."""

    seed: int
    steps: int | None = None  # network evaluations per chunk; None: the world's
    batch: int = 16  # rollouts side by side
    sampler: Sampler = block_euler


def load_clips(
    folder: Path | None, starts: int, frames: int, size: int, seed: int, play: str = "everything"
) -> ClipStore:
    """The given store, or one of held-out levels that is recorded into ``data/`` now, unless it is there already.

    Raises:
        ValueError: when there is nothing to record with.
    """
    if folder is not None:
        return ClipStore(folder)
    report.require_engine()
    from world_model.data.doom.recipe import CLIPS_PER_LEVEL
    from world_model.data.doom.record import record

    clips = starts * CLIPS_PER_LEVEL  # so that every start has a level of its own
    # A folder for each number of clips: the same store asked for fewer would drop the others.
    out = Path("data") / f"{SPLIT}-{play}-{size}px-{clips}x{frames}frames-seed{seed}"
    print(f"recording {clips} clips of {frames} frames in {starts} held-out levels into {out}")
    return record(out, clips=clips, frames=frames, size=size, seed=seed, split=SPLIT, play=play, workers=report.cores())


def choose_cases(store: ClipStore, starts: int, frames: int) -> list[Case]:
    """``starts`` of the clips that are long enough, evenly spread, each with the actions of one half the list away.

    Raises:
        ValueError: when there are too few.
    """
    long_enough = [index for index in range(len(store)) if store.length(index) >= frames]
    if len(long_enough) < max(2, starts):
        raise ValueError(
            f"{store.path} has {len(long_enough)} clips of at least {frames} frames and {max(2, starts)} are needed; "
            "record more or longer clips, or lower --starts, --horizon or --context"
        )
    return cases_of([store.window(long_enough[k * len(long_enough) // starts], 0, frames) for k in range(starts)])


def cases_of(clips: Sequence[Clip]) -> list[Case]:
    """Clips of the same length, each with the actions of one half the list away."""
    cases = []
    for index, clip in enumerate(clips):
        other = clips[(index + len(clips) // 2) % len(clips)].actions.copy()
        other[:, PERSPECTIVE] = clip.actions[:, PERSPECTIVE]
        cases.append(Case(clip, other, str(clip.meta.get("level_seed", index))))
    return cases


def generate(stream: WorldStream, cases: Sequence[Case], rows: np.ndarray, context: int, seeds: list[int]) -> Tensor:
    """Frames ``[B, horizon, H, W, 3]`` under ``rows [B, context + horizon, 6]`` and the true captions, after
    ``context`` true frames with their true actions."""
    n = stream.latents_per_chunk
    slots = list(range(len(cases)))
    captions = [case.clip.caption_at(context - 1) for case in cases]
    starts = [torch.tensor(case.clip.frames[:context]) for case in cases]  # copied: a store's frames are read-only
    stream.reset(slots, starts, captions, seeds, [torch.tensor(case.clip.actions[:context]) for case in cases])
    chunks = []
    for first in range(context, rows.shape[1], n):
        for slot, case in enumerate(cases):
            caption = case.clip.caption_at(first)
            if caption != captions[slot]:
                stream.set_caption([slot], **caption.as_dict())
                captions[slot] = caption
        chunks.append(stream.step(rows[:, first : first + n]).cpu())
    return torch.cat(chunks, dim=1)


def play(world: World, cases: Sequence[Case], rows: np.ndarray, context: int, sampling: Sampling) -> Tensor:
    """Frames ``[cases, horizon, H, W, 3]`` of all cases, each with a seed of its own, see `generate`."""
    parts = []
    for first in tqdm(range(0, len(cases), sampling.batch), unit="batch", desc="generating", leave=False):
        batch = slice(first, first + sampling.batch)
        seeds = [sampling.seed * 1_000_003 + first + slot for slot in range(len(cases[batch]))]
        stream = world.stream(len(seeds), sampling_steps=sampling.steps, sampler=sampling.sampler)
        parts.append(generate(stream, cases[batch], rows[batch], context, seeds))
    return torch.cat(parts)


def true_frames(cases: Sequence[Case]) -> Tensor:
    """The recorded frames ``[cases, context + horizon, H, W, 3]``."""
    return torch.from_numpy(np.stack([case.clip.frames for case in cases]))


def true_rows(cases: Sequence[Case]) -> np.ndarray:
    """The recorded actions ``[cases, context + horizon, 6]``."""
    return np.stack([case.clip.actions for case in cases])


def shuffled_rows(cases: Sequence[Case]) -> np.ndarray:
    """Those of other cases, ``[cases, context + horizon, 6]``."""
    return np.stack([case.shuffled for case in cases])


@torch.inference_mode()
def reconstruct(world: World, frames: Tensor, context: int) -> Tensor:
    """True frames ``[B, context + horizon, H, W, 3]`` through the codec and back, without the context."""
    return torch.stack(
        [to_uint8(world.codec.decode(world.codec.encode(to_unit(clip)[None]))[0])[0, context:] for clip in frames]
    )


def compare(world: World, cases: Sequence[Case], settings: argparse.Namespace) -> dict[str, dict[str, np.ndarray]]:
    """Per measure and contestant, values ``[starts, horizon]``."""
    context, sampling = settings.context, Sampling(settings.seed, settings.steps, settings.batch)
    true = true_frames(cases)
    ahead = true[:, context:]
    rivals = {
        GENERATED: play(world, cases, true_rows(cases), context, sampling),
        SHUFFLED: play(world, cases, shuffled_rows(cases), context, sampling),
        FLOOR: true[:, context - 1 : context].expand_as(ahead),
        CEILING: reconstruct(world, true, context),
    }
    return {
        measure: {
            name: torch.stack([function(one, other) for one, other in zip(frames, ahead, strict=True)]).numpy()
            for name, frames in rivals.items()
        }
        for measure, (function, _) in MEASURES.items()
    }


def summarise(
    values: dict[str, np.ndarray], horizons: Sequence[int], levels: Sequence[str], seed: int
) -> dict[str, list[report.Interval]]:
    """Intervals at each horizon for every contestant and every paired difference."""
    paired = {name: values[one] - values[two] for name, (one, two) in DIFFERENCES.items()}
    return {
        name: [report.bootstrap(table[:, horizon - 1], seed, levels) for horizon in horizons]
        for name, table in (values | paired).items()
    }


def check(settings: argparse.Namespace, world: World) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    for name in ("starts", "horizon", "context", "batch"):
        if getattr(settings, name) < 1:
            raise ValueError(f"--{name} is {getattr(settings, name)}; give at least 1")
    n, per_latent = world.config.chunk_latents, world.config.codec.temporal_factor
    if per_latent != 1:
        raise ValueError(f"this world makes {per_latent} frames per latent; recordings have one action row per frame")
    if settings.horizon % n or (settings.context - 1) % n:
        raise ValueError(
            f"--horizon {settings.horizon} and --context {settings.context} do not fit chunks of {n} latents; "
            f"give a multiple of {n}, and 1 + a multiple of {n}"
        )


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    world = load_world(settings.world)
    if settings.quick:
        settings.starts, settings.horizon = min(settings.starts, QUICK_STARTS), min(settings.horizon, QUICK_HORIZON)
    check(settings, world)
    frames = settings.context + settings.horizon
    store = load_clips(settings.data, settings.starts, frames, world.config.video.height, settings.seed)
    cases = choose_cases(store, settings.starts, frames)
    levels = [case.level for case in cases]
    values = compare(world, cases, settings)
    horizons = list(range(1, settings.horizon + 1))
    shown = [h for h in (2**k for k in range(32)) if h <= settings.horizon]

    print(f"\n{len(cases)} starts in {len(set(levels))} held-out levels, {settings.context} true frames before each,")
    print(f"world {world.name!r}, seed {settings.seed}; mean and 95 % interval after so many generated frames\n")
    results, curves = {}, {}
    for measure, (_, decimals) in MEASURES.items():
        intervals = summarise(values[measure], horizons, levels, settings.seed)
        rows = [[name, *(line[h - 1].text(decimals) for h in shown)] for name, line in intervals.items()]
        print(report.markdown_table([measure, *map(str, shown)], rows), end="\n\n")
        near = intervals[f"{GENERATED} - {FLOOR}"][:NEAR]
        worst = min(range(len(near)), key=lambda index: near[index].mean)
        print(f"least margin over the floor up to {len(near)} frames: {near[worst].text(decimals)}, at {worst + 1}\n")
        results[measure] = {name: dict(zip(map(str, horizons), line, strict=True)) for name, line in intervals.items()}
        curves[measure] = [report.Curve(name, horizons, intervals[name]) for name in values[measure]]
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(settings.json, settings, results)
    if settings.plot:
        report.plot(settings.plot, curves, "generated frames")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    report.add_rollout_options(parser, starts=64, horizon=64)
    parser.add_argument("--context", type=int, default=8, help="true frames before them (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
