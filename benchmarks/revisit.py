"""Does the generated world still know a place when it comes back?

The protocol of RevisitBench: random moves and turns, then their exact inverse, so that after n steps out and n back
frame n + k looks from where frame n - k looked. It is run twice:

  true first pass   the way out is the true game's, taken in as memory; only the way back is generated. What comes
                    back can only come from memory: this isolates it.
  own first pass    everything but the first frame is generated; the way back is compared with the world's own way
                    out (consistency) and with the true game.

for the same world with different memories: none (the first picture and the newest), a raw window (first picture and
newest few), full context (every latent at full resolution), compressed (as it runs; and with so few slots that full
context holds eight times its tokens), and compressed with the memories exchanged among the rollouts, which must
destroy the gain. Only returns whose first pass has left the raw window count.

The variants are the weights of one world, which was trained with its compressed memory; the shuffled one is the fairest
control. Full context is nothing that these weights know: a fair rival is a world that was trained with it for a while
(``wp2 train doom --stage full_context``, histories of up to 96 latents, which is enough for 10 s), given by
``--full-context``.

Beside them stand the floor (the last frame of the way out, repeated), the ceiling (true frames through the codec) and,
since a frozen picture is consistent too, motion (of the true motion) and how far generated turns are from the
commanded ones. Learned distance: cosine distance of the features of `benchmarks.inverse_dynamics`; published
perceptual metrics need weights that are downloaded. Intervals are 95 % bootstrap intervals over levels.

examples:
  python -m benchmarks.revisit --quick
  python -m benchmarks.revisit --json results/revisit.json --plot results/revisit.png
  python -m benchmarks.revisit --full-context runs/full-context/world
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks import report
from benchmarks.fidelity import load_clips, reconstruct
from benchmarks.inverse_dynamics import InverseDynamics, load, rotation_error
from benchmarks.walks import COMPRESSED, FULL, NONE, SHUFFLED, SMALL, WINDOW, Rollout, roll, variants
from world_model.checkpoint import load_world
from world_model.data.clips import Clip
from world_model.world import World

LONG_WAY, SHORT_WAY = 131, 43  # steps out: 30 s and 10 s there and back, at 8.75 frames a second
CASES, QUICK_CASES = 48, 12
SPANS = ((1, 8), (9, 16), (17, 32), (33, 64), (65, 131))  # steps of the way back
FLOOR, CEILING, GAME = "repeat last frame (floor)", "codec (ceiling)", "true game"
MEASURES = {"PSNR (dB)": 2, "SSIM": 3, "learned distance": 3}  # and decimals
TOKENS = "context tokens"
VIEWS = {"truth": "against the true game", "consistency": "against the own way out"}
GAINS = [(COMPRESSED, other) for other in (NONE, WINDOW, SHUFFLED, FULL)] + [(SMALL, FULL)]


class Judge:
    """Measures the way back of a rollout; every measure gives ``[B, n]`` or, for a whole way, ``[B]``."""

    def __init__(self, yardstick: InverseDynamics, clips: Sequence[Clip]) -> None:
        self.yardstick = yardstick
        self.true = torch.from_numpy(np.stack([clip.frames for clip in clips]))
        self.rows = torch.from_numpy(np.stack([clip.actions for clip in clips]))
        self.way = (self.true.shape[1] - 1) // 2

    def truth(self, frames: Tensor) -> dict[str, Tensor]:
        """The way back against the true game."""
        return self._compare(frames[:, self.way + 1 :], self.true[:, self.way + 1 :])

    def consistency(self, frames: Tensor) -> dict[str, Tensor]:
        """The way back against the rollout's own way out: frame n + k against n - k."""
        return self._compare(frames[:, self.way + 1 :], frames[:, : self.way].flip(1))

    def cost_and_liveliness(self, rollout: Rollout) -> dict[str, Tensor]:
        """Tokens of memory, and what a frozen picture fails: motion as a share of the true motion, turns against the
        commanded ones."""
        frames = rollout.frames
        back, true = frames[:, self.way :], self.true[:, self.way :]
        estimated = self.yardstick.estimate(back).numpy()
        errors = rotation_error(estimated, self.rows[:, self.way + 1 :].numpy())
        moved, wanted = (pictures.float().diff(dim=1).abs().mean(dim=(1, 2, 3, 4)) for pictures in (back, true))
        return {
            TOKENS: rollout.tokens,
            "motion": moved / wanted.clamp_min(1e-6),
            "rotation error (degrees)": torch.from_numpy(errors).mean(dim=1),
        }

    def _compare(self, one: Tensor, other: Tensor) -> dict[str, Tensor]:
        features = [self.yardstick.features(frames.flatten(0, 1)) for frames in (one, other)]
        distance = (1 - torch.cosine_similarity(*features, dim=-1)).unflatten(0, one.shape[:2])
        return {"PSNR (dB)": report.psnr(one, other), "SSIM": report.ssim(one, other), "learned distance": distance}


@dataclass(frozen=True)
class Protocol:
    """One way of running the benchmark."""

    name: str
    way: int  # steps out, and as many back
    observed: int  # frames of the way out that are the true game's; 0: all are generated


def protocols(quick: bool) -> list[Protocol]:
    """True and own first pass, 10 and 30 seconds there and back; quick: the one that isolates memory, the short way."""
    every = [
        Protocol("10 s, true first pass", SHORT_WAY, SHORT_WAY),
        Protocol("10 s, own first pass", SHORT_WAY, 0),
        Protocol("30 s, true first pass", LONG_WAY, LONG_WAY),
        Protocol("30 s, own first pass", LONG_WAY, 0),
    ]
    return every[:1] if quick else every


@dataclass
class Scores:
    """What one contestant reached, by case: measures ``[cases, n]`` of the way back, and figures ``[cases]``."""

    truth: dict[str, np.ndarray]
    consistency: dict[str, np.ndarray]
    liveliness: dict[str, np.ndarray]


def contest(world: World, full: World, protocol: Protocol, clips: list[Clip], settings: argparse.Namespace) -> dict:
    """Scores of all contestants by name."""
    yardstick = load()
    contestants = variants(world, full, protocol.way)
    generated = 2 * protocol.way - protocol.observed
    gathered: dict[str, list[tuple]] = {}
    with tqdm(total=len(clips) * generated * len(contestants), unit="frame", desc=protocol.name) as bar:
        for first in range(0, len(clips), settings.batch):
            batch = clips[first : first + settings.batch]
            judge = Judge(yardstick, batch)
            seeds = [settings.seed * 1_000_003 + first + slot for slot in range(len(batch))]
            rollouts = {name: roll(v, batch, seeds, protocol.observed, bar) for name, v in contestants.items()}
            for name, rollout in (rollouts | references(world, judge)).items():
                frames = rollout.frames
                scores = (judge.truth(frames), judge.consistency(frames), judge.cost_and_liveliness(rollout))
                gathered.setdefault(name, []).append(scores)
    return {name: Scores(*_joined(parts)) for name, parts in gathered.items()}


def references(world: World, judge: Judge) -> dict[str, Rollout]:
    """The floor and the ceilings, which need no memory."""
    true, way = judge.true, judge.way
    frozen = torch.cat([true[:, : way + 1], true[:, way : way + 1].expand(-1, way, -1, -1, -1)], dim=1)
    coded = torch.cat([true[:, :1], reconstruct(world, true, 1)], dim=1)
    none = torch.zeros(len(true))
    return {FLOOR: Rollout(frozen, none), CEILING: Rollout(coded, none), GAME: Rollout(true, none)}


def _joined(parts: list[tuple]) -> list[dict[str, np.ndarray]]:
    """Batches of scores, one after the other."""
    return [
        {key: torch.cat([p[key] for p in column]).numpy() for key in column[0]} for column in zip(*parts, strict=True)
    ]


def spans(way: int, window: int) -> dict[str, slice]:
    """Parts of a way back whose first pass lies outside a raw window of ``window`` latents, by name."""
    first = window // 2 + 1  # the first step back whose first pass is more than the window away
    named = {"all": slice(first - 1, way)}
    for low, high in ((max(low, first), min(high, way)) for low, high in SPANS):
        if low <= high:
            named[f"{low}-{high}"] = slice(low - 1, high)
    return named


def tables(scores: dict[str, Scores], levels: list[str], named: dict[str, slice], seed: int) -> dict[str, dict]:
    """Per view (against what) and measure, intervals of every contestant and gain over the spans."""
    results: dict[str, dict] = {}
    for view in ("truth", "consistency"):
        for measure in MEASURES:
            values = {name: getattr(one, view)[measure] for name, one in scores.items()}
            values |= {f"{a} - {b}": values[a] - values[b] for a, b in GAINS}
            results[f"{measure}, {VIEWS[view]}"] = {
                name: {
                    span: report.bootstrap(table[:, part].mean(axis=1), seed, levels) for span, part in named.items()
                }
                for name, table in values.items()
            }
    return results


def show(results: dict[str, dict], scores: dict[str, Scores], levels: list[str], seed: int) -> dict[str, dict]:
    """Print the tables of one protocol; returns the figures of the last one."""
    for title, rows in results.items():
        decimals = MEASURES[title.partition(",")[0]]
        shown = [[name, *(interval.text(decimals) for interval in line.values())] for name, line in rows.items()]
        print(report.markdown_table([title, *next(iter(rows.values()))], shown), end="\n\n")
    cost = {
        name: {key: report.bootstrap(values, seed, levels) for key, values in one.liveliness.items()}
        for name, one in scores.items()
    }
    shown = [[name, *(str(interval) for interval in line.values())] for name, line in cost.items()]
    print(report.markdown_table(["memory and liveliness", *next(iter(cost.values()))], shown), end="\n\n")
    full, compressed, small = (cost[name][TOKENS].mean for name in (FULL, COMPRESSED, SMALL))
    print(f"full context holds {full / compressed:.1f} times the tokens of the compressed memory,")
    print(f"{full / small:.1f} times those of the smaller one\n")
    return cost


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    world = load_world(settings.world)
    full = world if settings.full_context is None else load_world(settings.full_context)
    cases = min(settings.cases, QUICK_CASES) if settings.quick else settings.cases
    check(world, cases, settings)
    everything, curves = {}, {}
    for protocol in protocols(settings.quick):
        frames = 1 + 2 * protocol.way
        store = load_clips(None, cases, frames, world.config.video.height, settings.seed, play="mirror")
        clips = [store[index * len(store) // cases] for index in range(cases)]
        levels = [str(clip.meta["level_seed"]) for clip in clips]
        scores = contest(world, full, protocol, clips, settings)
        results = tables(scores, levels, spans(protocol.way, world.config.memory.adjacent_latents), settings.seed)
        print(f"\n{protocol.name}: {cases} walks in {len(set(levels))} held-out levels, seed {settings.seed};")
        print("steps of the way back; mean and 95 % interval\n")
        everything[protocol.name] = results | {"memory and liveliness": show(results, scores, levels, settings.seed)}
        truth = {name: one.truth["PSNR (dB)"] for name, one in scores.items() if name != GAME}
        steps = range(1, protocol.way + 1)
        curves[f"PSNR (dB), {protocol.name}"] = [
            report.Curve(name, steps, [report.bootstrap(table[:, k], settings.seed, levels) for k in range(len(steps))])
            for name, table in truth.items()
        ]
    print(f"{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(settings.json, settings, everything)
    if settings.plot:
        report.plot(settings.plot, curves, "steps back")


def check(world: World, cases: int, settings: argparse.Namespace) -> None:
    """Refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    if cases < 2 or settings.batch < 2:
        raise ValueError(
            f"--cases {settings.cases} and --batch {settings.batch} leave nobody to exchange memories with; give 2 or "
            "more of each"
        )
    if world.config.memory.adjacent_latents // 2 >= SHORT_WAY:
        raise ValueError(
            f"world {world.name!r} sees {world.config.memory.adjacent_latents} latents at full resolution, the whole "
            f"way of {SHORT_WAY} steps; give a world with a compressed memory, and this one to --full-context"
        )
    if cases % settings.batch == 1:
        raise ValueError(f"--cases {cases} in batches of {settings.batch} leaves one alone; choose another --batch")
    if world.config.chunk_latents != 1 or world.config.codec.temporal_factor != 1:
        raise ValueError(f"world {world.name!r} makes several frames a step; the walks turn back after any one frame")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="walks of each length (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="rollouts side by side (default: %(default)s)")
    parser.add_argument("--full-context", help="a world trained with full context (default: the same weights)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
