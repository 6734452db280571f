"""How a world does in the true game's levels: near the truth, in answer to actions, and in the long run (for
`benchmarks.forcing_ablation`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from benchmarks import drift, fidelity, report
from benchmarks.drift import CODEC, CONTEXT, FLOOR, TRUE, Seen, Start
from benchmarks.fidelity import Case, Sampling
from benchmarks.looks import looks
from world_model.world import World

NEAR = 16  # frames that are compared with the true ones
DRIFTING = ("contrast", "motion", "sharpness")
PSNR, RESPONSE, DRIFT = "PSNR (dB)", "response (dB)", "drift distance"
TINY_LOOK = 0.1  # grey levels, added to both sides of a ratio: a still picture has no motion at all

# Of one contestant and seed, by measure, values [starts, places]: places are frames of PSNR, segments of all else.
Outcome = dict[str, np.ndarray]


@dataclass(frozen=True)
class Trial:
    """What contestants go through."""

    starts: list[Start]
    cases: list[Case]  # the same starts with their true and with other controls
    features: drift.Features
    looks: dict[str, np.ndarray]  # of other recordings of the levels: [starts]
    reference: list[np.ndarray]  # features of those, of each start: [n, D]
    parts: list[tuple[int, int]]  # segments of a rollout
    batch: int


def build(world: World, starts: list[Start], horizon: int, batch: int) -> Trial:
    """The trial of worlds with the codec of ``world``."""
    clips = [replace(start.clip, frames=start.clip.frames[: CONTEXT + NEAR]) for start in starts]
    cases = fidelity.cases_of([replace(clip, actions=clip.actions[: CONTEXT + NEAR]) for clip in clips])
    others = [[_looks_of(clip.frames) for clip in start.others] for start in starts]
    true = {name: np.array([np.mean([look[name] for look in group]) for group in others]) for name in DRIFTING}
    features, parts = drift.codec_features(world), drift.segments(horizon, world.config.chunk_latents)
    pictures = [np.concatenate([clip.frames[:: drift.STRIDE] for clip in start.others]) for start in starts]
    reference = [features(torch.from_numpy(frames)) for frames in pictures]
    return Trial(starts, cases, features, true, reference, parts, batch)


def _looks_of(frames: np.ndarray) -> dict[str, float]:
    frames = torch.tensor(frames)[None]  # copied: a store's frames are read-only
    return {name: float(values.mean()) for name, values in looks(frames[:, 1:], frames[:, 0]).items()}


def perform(world: World, trial: Trial, seed: int, steps: int | None = None) -> tuple[Outcome, Seen]:
    """What a world does from every start, and what was seen at the end of its rollouts."""
    sampling = Sampling(seed, steps, trial.batch)
    true = fidelity.true_frames(trial.cases)[:, CONTEXT:]
    told, misled = (
        _psnr(fidelity.play(world, trial.cases, rows, CONTEXT, sampling), true)
        for rows in (fidelity.true_rows(trial.cases), fidelity.shuffled_rows(trial.cases))
    )
    segments = drift.watch(world, trial.starts, trial.features, trial.parts, sampling)
    answer = {PSNR: told, RESPONSE: (told - misled).mean(1, keepdims=True)}
    return answer | drifted(segments, trial.looks), segments[-1]


def beside(world: World, trial: Trial) -> dict[str, tuple[Outcome, Seen]]:
    """The same of floor, codec and true game, which have no controls to respond to."""
    true = fidelity.true_frames(trial.cases)
    near = {
        FLOOR: true[:, CONTEXT - 1 : CONTEXT].expand_as(true[:, CONTEXT:]),
        CODEC: fidelity.reconstruct(world, true, CONTEXT),
    }
    answers = {name: {PSNR: _psnr(frames, true[:, CONTEXT:])} for name, frames in near.items()} | {TRUE: {}}
    rivals = drift.beside(world, trial.starts, trial.features)
    return {name: (answers[name] | drifted([seen], trial.looks), seen) for name, seen in rivals.items()}


def drifted(segments: Sequence[Seen], true: dict[str, np.ndarray]) -> Outcome:
    """Log ratios ``[starts, segments]`` of looks to the true game's, and the mean of their sizes."""
    seen = {name: np.stack([segment.looks[name] for segment in segments], axis=1) for name in true}
    ratios = {name: np.log((seen[name] + TINY_LOOK) / (of[:, None] + TINY_LOOK)) for name, of in true.items()}
    return ratios | {DRIFT: np.mean([np.abs(ratio) for ratio in ratios.values()], axis=0)}


def _psnr(frames: torch.Tensor, true: torch.Tensor) -> np.ndarray:
    return report.psnr(frames, true).numpy()
