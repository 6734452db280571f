"""Does the generated world keep looking like the game, or does it drift as it feeds on its own pictures?

Rollouts begin with true frames of held-out levels and go on for thousands of frames under controls of recordings: the
start's own ones first, then those of others, one recording after the other. Each stretch of a rollout is compared
with true frames of the same levels, by how pictures look (brightness, contrast, saturation, motion, sharpness) and by
the Frechet distance between features of its last frames and of other recordings in those levels. Beside it:

  repeat last frame (floor)   the last true frame before the rollout, for ever;
  codec                       what followed in the true game, encoded and decoded;
  true game (ceiling)         what followed in the true game; its distance is that of true frames from true frames.

Intervals are 95 % bootstrap intervals over levels. Differences are paired: generated minus true in the same level.

examples:
  python -m benchmarks.drift --quick
  python -m benchmarks.drift --starts 32 --horizon 2000 --json results/drift.json --plot results/drift.png
  python -m benchmarks.drift --data data/test --world runs/doom/world
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks import report
from benchmarks.fidelity import Sampling, load_clips, reconstruct
from benchmarks.frechet import frechet_interval
from benchmarks.looks import looks
from world_model.checkpoint import load_world
from world_model.codec import to_unit
from world_model.controls import NOTHING, PERSPECTIVE
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.world import World

QUICK_STARTS, QUICK_HORIZON = 8, 300
LEVELS = 64  # to record; about two thirds have two recordings without an event, which is what a start needs
CONTEXT, TRUE_FRAMES = 8, 72  # true frames before a rollout, and in all: the recordings that `fidelity` makes, too
SHORTEST = 50  # frames of the first segment; each later one is as long as all before it
SPAN, STRIDE = 50, 2  # features are those of every second of a segment's last 50 frames: a fixed stretch of every video
GENERATED, FLOOR, CODEC, TRUE = "generated", "repeat last frame (floor)", "codec", "true game (ceiling)"
DECIMALS = {"brightness": 1, "contrast": 1, "saturation": 3, "motion": 2, "sharpness": 2}
DISTANCE = "Frechet distance"

Features = Callable[[Tensor], np.ndarray]  # uint8 pictures [N, H, W, 3] to features [N, D]


@dataclass(frozen=True)
class Start:
    """Where a rollout begins: a recording of ``TRUE_FRAMES`` frames, and others of the same level."""

    level: str
    clip: Clip
    others: tuple[Clip, ...]
    rows: np.ndarray  # float32 [CONTEXT + horizon, 6]


@dataclass(frozen=True)
class Seen:
    """One stretch of video from each of some starts."""

    looks: dict[str, np.ndarray]  # by measure, means over its frames: [starts]
    features: list[np.ndarray]  # of each start: [n, D]


def codec_features(world: World) -> Features:
    """Mean and standard deviation of each latent channel over the picture, from the world's codec: ``D = 2 C``."""

    @torch.inference_mode()
    def features(pictures: Tensor) -> np.ndarray:
        encoded = []
        for part in pictures.split(64):
            latents = world.codec.encode(to_unit(part.to(world.device))[:, None])[:, 0].flatten(2)  # [N, C, h * w]
            encoded.append(torch.cat([latents.mean(2), latents.std(2)], dim=1).cpu())
        return torch.cat(encoded).numpy()

    return features


def segments(horizon: int, chunk: int) -> list[tuple[int, int]]:
    """First frame and end of each segment: of 50 frames, then each as long as all before it, up to the horizon."""
    shortest = -(-SHORTEST // chunk) * chunk
    edges = [0]
    while edges[-1] < horizon:
        edges.append(min(horizon, max(shortest, 2 * edges[-1])))
    return list(zip(edges, edges[1:], strict=False))


def choose_starts(store: ClipStore, count: int, horizon: int, rng: np.random.Generator) -> list[Start]:
    """``count`` starts, each in a level of its own that has another recording, none with an event.

    Raises:
        ValueError: when there are too few.
    """
    long_enough = [index for index in range(len(store)) if store.length(index) >= TRUE_FRAMES]
    by_level: dict[str, list[Clip]] = {}
    for index in long_enough:
        clip = store.window(index, 0, TRUE_FRAMES)
        if all(caption.event == NOTHING for _, caption in clip.captions):
            by_level.setdefault(str(clip.meta.get("level_seed", index)), []).append(clip)
    fit = {level: clips for level, clips in by_level.items() if len(clips) > 1}
    if len(fit) < count:
        raise ValueError(
            f"{store.path} has {len(fit)} levels with two recordings of at least {TRUE_FRAMES} frames and no event, "
            f"and {count} are needed; record more clips, or lower --starts"
        )
    pool = [clip for clips in fit.values() for clip in clips]
    chosen = [list(fit)[k * len(fit) // count] for k in range(count)]
    return [
        Start(level, fit[level][0], tuple(fit[level][1:]), controls(fit[level][0], pool, horizon, rng))
        for level in chosen
    ]


def controls(clip: Clip, pool: Sequence[Clip], horizon: int, rng: np.random.Generator) -> np.ndarray:
    """Rows ``[CONTEXT + horizon, 6]``: those of the clip, then of others drawn from the pool; the view stays."""
    pieces = [clip.actions]
    while sum(map(len, pieces)) < CONTEXT + horizon:
        pieces.append(pool[int(rng.integers(len(pool)))].actions[1:])  # row 0 led to a frame before the recording
    rows = np.concatenate(pieces)[: CONTEXT + horizon].copy()
    rows[CONTEXT:, PERSPECTIVE] = rows[CONTEXT - 1, PERSPECTIVE]
    return rows


def see(frames: Tensor, before: Tensor, features: Features) -> Seen:
    """Look at videos ``[B, T, H, W, 3]`` that follow the frames ``before [B, H, W, 3]``."""
    last = frames[:, -SPAN::STRIDE]
    seen = features(last.flatten(0, 1)).reshape(len(last), last.shape[1], -1)
    return Seen({name: values.mean(1).numpy() for name, values in looks(frames, before).items()}, list(seen))


def roll_out(
    world: World, starts: Sequence[Start], parts: Sequence[tuple[int, int]], seeds: Sequence[int], steps: int | None
) -> Iterator[Tensor]:
    """The frames ``[B, T, H, W, 3]`` of one segment after the other; the caption stays that of the start."""
    stream = world.stream(len(starts), sampling_steps=steps)
    captions = [start.clip.caption_at(CONTEXT - 1) for start in starts]
    pictures = [torch.tensor(start.clip.frames[:CONTEXT]) for start in starts]  # copied: recordings are read-only
    rows = np.stack([start.rows for start in starts])
    stream.reset(range(len(starts)), pictures, captions, seeds, [torch.tensor(row[:CONTEXT]) for row in rows])
    n = stream.latents_per_chunk
    for begin, end in parts:
        firsts = range(CONTEXT + begin, CONTEXT + end, n)
        yield torch.cat([stream.step(rows[:, first : first + n]).cpu() for first in firsts], dim=1)


def together(parts: Sequence[Seen]) -> Seen:
    """What was seen of several groups of starts, as one."""
    names = parts[0].looks
    return Seen(
        {name: np.concatenate([part.looks[name] for part in parts]) for name in names},
        [features for part in parts for features in part.features],
    )


def compare(
    world: World, starts: Sequence[Start], features: Features, settings: argparse.Namespace
) -> tuple[list[Seen], dict[str, Seen]]:
    """What was seen of every segment of the rollouts, and of what stands beside them."""
    sampling = Sampling(settings.seed, settings.steps, settings.batch)
    parts = segments(settings.horizon, world.config.chunk_latents)
    return watch(world, starts, features, parts, sampling), beside(world, starts, features)


def watch(
    world: World, starts: Sequence[Start], features: Features, parts: Sequence[tuple[int, int]], sampling: Sampling
) -> list[Seen]:
    """What was seen of every segment of the rollouts."""
    generated: list[list[Seen]] = [[] for _ in parts]
    bar = tqdm(total=len(starts) * parts[-1][1], unit="frame", desc="generating")
    for first in range(0, len(starts), sampling.batch):
        batch = starts[first : first + sampling.batch]
        last = torch.from_numpy(np.stack([start.clip.frames[CONTEXT - 1] for start in batch]))
        seeds = [sampling.seed * 1_000_003 + first + slot for slot in range(len(batch))]
        for place, frames in enumerate(roll_out(world, batch, parts, seeds, sampling.steps)):
            generated[place].append(see(frames, last, features))
            last = frames[:, -1]
            bar.update(len(batch) * frames.shape[1])
    bar.close()
    return [together(seen) for seen in generated]


def beside(world: World, starts: Sequence[Start], features: Features) -> dict[str, Seen]:
    """What was seen of the true game, of the codec's pictures of it, and of the last true frame, repeated."""
    rivals: dict[str, list[Seen]] = {TRUE: [], CODEC: [], FLOOR: []}
    for start in starts:
        true = torch.tensor(start.clip.frames)[None]
        last = true[:, CONTEXT - 1]
        videos = {
            TRUE: true[:, CONTEXT:],
            CODEC: reconstruct(world, true, CONTEXT),
            FLOOR: last[:, None].expand(-1, SPAN, -1, -1, -1),
        }
        for name, frames in videos.items():
            rivals[name].append(see(frames, last, features))
    return {name: together(seen) for name, seen in rivals.items()}


def summarise(seen: Seen, reference: Sequence[np.ndarray], seed: int) -> dict[str, report.Interval]:
    """Intervals of every measure, and of the distance to true features of the same levels."""
    measured = {name: report.bootstrap(values, seed) for name, values in seen.looks.items()}
    return measured | {DISTANCE: frechet_interval(seen.features, reference, seed)}


def subtract(seen: Seen, true: Seen, seed: int) -> dict[str, report.Interval]:
    """Paired differences from the true game."""
    return {name: report.bootstrap(values - true.looks[name], seed) for name, values in seen.looks.items()}


def check(settings: argparse.Namespace, world: World) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    for name, least in (("starts", 2), ("horizon", 1), ("batch", 1)):
        if getattr(settings, name) < least:
            raise ValueError(f"--{name} is {getattr(settings, name)}; give at least {least}")
    n, per_latent = world.config.chunk_latents, world.config.codec.temporal_factor
    if per_latent != 1 or (CONTEXT - 1) % n:
        raise ValueError(
            f"this world makes {per_latent} frames per latent and {n} latents per chunk; recordings have one action "
            f"row per frame, and the {CONTEXT} frames of a start must be 1 + a multiple of a chunk"
        )
    if settings.horizon % n:
        raise ValueError(f"--horizon {settings.horizon} is no multiple of the {n} latents of a chunk; give one")


def table(rows: dict[str, dict[str, report.Interval]]) -> str:
    """One line per video, one column per measure."""
    names = list(next(iter(rows.values())))
    lines = [[name, *(line[m].text(DECIMALS.get(m, 3)) for m in names)] for name, line in rows.items()]
    return report.markdown_table(["frames", *names], lines)


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    world = load_world(settings.world)
    if settings.quick:
        settings.starts, settings.horizon = min(settings.starts, QUICK_STARTS), min(settings.horizon, QUICK_HORIZON)
    check(settings, world)
    store = load_clips(settings.data, LEVELS, TRUE_FRAMES, world.config.video.height, settings.seed)
    starts = choose_starts(store, settings.starts, settings.horizon, np.random.default_rng(settings.seed))
    features = codec_features(world)
    generated, rivals = compare(world, starts, features, settings)

    others = [torch.from_numpy(np.concatenate([c.frames[::STRIDE] for c in start.others])) for start in starts]
    reference = [features(pictures) for pictures in others]
    spans = [f"{begin + 1}-{end}" for begin, end in segments(settings.horizon, world.config.chunk_latents)]
    lines = {span: summarise(seen, reference, settings.seed) for span, seen in zip(spans, generated, strict=True)}
    beside = {name: summarise(seen, reference, settings.seed) for name, seen in rivals.items()}
    differences = {
        span: subtract(seen, rivals[TRUE], settings.seed) for span, seen in zip(spans, generated, strict=True)
    }

    print(f"\n{len(starts)} starts in as many held-out levels, {CONTEXT} true frames before each,")
    print(f"world {world.name!r}, seed {settings.seed}; mean and 95 % interval over generated frames\n")
    print(table(lines | beside), end="\n\nGenerated minus true game, in the same level:\n\n")
    print(table(differences), end="\n\n")
    drifted = [name for name, value in differences[spans[-1]].items() if value.low > 0 or value.high < 0]
    print(f"unlike the true game in frames {spans[-1]}: {', '.join(drifted) or 'nothing'}")
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        results = {GENERATED: lines, "beside": beside, "generated - true game": differences}
        report.write_json(settings.json, settings, results)
    if settings.plot:
        report.plot(settings.plot, panels(lines, beside), "generated frames")


def panels(
    lines: dict[str, dict[str, report.Interval]], beside: dict[str, dict[str, report.Interval]]
) -> dict[str, list[report.Curve]]:
    """Every measure over the end of the segments, with the bands of what stands beside."""
    ends = [int(span.partition("-")[2]) for span in lines]
    return {
        measure: [report.Curve(GENERATED, ends, [line[measure] for line in lines.values()])]
        + [report.Curve(name, ends, [intervals[measure]] * len(ends)) for name, intervals in beside.items()]
        for measure in next(iter(lines.values()))
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    report.add_rollout_options(parser, starts=16, horizon=2000)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
