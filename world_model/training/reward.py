"""`wp2 train reward`: learn when a task is fulfilled, on true latents and on the world's own, then calibrate.

Events are rare, so half of every batch is drawn from steps in which one happened; what this does to probabilities is
undone on held-out recordings, whose generated runs also give each task its threshold. Rollouts take most of the time;
fitting takes a minute and need not be resumed: a run that is interrupted writes nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from world_model.checkpoint import DTYPES, load_world
from world_model.config import RewardConfig
from world_model.data.joined import JoinedStore
from world_model.reward import REWARD_FILE, RewardHeads, codec_digest, save_heads
from world_model.tables import markdown_table
from world_model.training.reward_data import Judged, RunsOf, joined
from world_model.training.reward_scores import Outcomes, auroc, outcomes

BATCH = 128  # steps, of each member
EVENT_SHARE = 0.5  # of a batch: steps with an event of some task
LEARNING_RATE, WEIGHT_DECAY = 3e-3, 0.5
# Standard deviation of the noise on latents, whose own is about 1: the few successes are easily learnt by heart.
NOISE = 0.7
CALIBRATION_STEPS = 300
HELD_OUT = 3  # rollouts to learn from for each one to calibrate on
THRESHOLDS = np.linspace(0.02, 0.98, 97)


class Draws:
    """Draws steps to learn from: as many with an event as without, and of the former as many of each task."""

    def __init__(self, runs: Judged, generator: torch.Generator) -> None:
        self.runs, self.generator = runs, generator
        self.any = runs.counted.any(-1).nonzero()
        events = (runs.rewards > 0) & runs.counted
        self.of_task = [place for place in (column.nonzero() for column in events.unbind(-1)) if len(place)]

    def draw(self) -> Tensor:
        """Run and step, int64 ``[BATCH, 2]`` or a few less."""
        events = int(EVENT_SHARE * BATCH) if self.of_task else 0
        chosen = [self._some(places, events // len(self.of_task)) for places in self.of_task]
        return torch.cat([*chosen, self._some(self.any, BATCH - events)])

    def _some(self, places: Tensor, count: int) -> Tensor:
        return places[torch.randint(len(places), (count,), generator=self.generator)]


def fit(heads: RewardHeads, runs: Judged, used: Callable[[], float], generator: torch.Generator) -> None:
    """Train every member on draws of its own until ``used``, the share of the budget, is 1; the rate falls with it.

    Raises:
        ValueError: when a task has no event to learn from.
    """
    events = ((runs.rewards > 0) & runs.counted).sum((0, 1))
    for task, count in zip(heads.tasks, events.tolist(), strict=True):
        if not count:
            raise ValueError(f"no step of the recordings is rewarded for {task!r}; record more with --play tasks")
    draws = Draws(runs, generator)
    optimizer = torch.optim.AdamW(heads.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    heads.train()
    with tqdm(desc="fitting", unit="step") as bar:
        while (share := used()) < 1:
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * (1 + np.cos(np.pi * share)) / 2
            loss = sum(_loss(member, heads.config, runs, draws.draw(), generator) for member in heads.members)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update()
            bar.set_postfix(loss=f"{loss.item() / len(heads.members):.3f}")
    heads.eval().requires_grad_(False)


def _loss(
    member: torch.nn.Module, config: RewardConfig, runs: Judged, places: Tensor, generator: torch.Generator
) -> Tensor:
    """Cross entropy of what happened in the steps ``places [B, 2]`` and, where something did, of whether it ended."""
    rows, steps = places.unbind(1)
    latents = runs.windows(rows, steps, config.window)
    logits = member(latents + NOISE * torch.randn(latents.shape, generator=generator))
    counted, happened = runs.counted[rows, steps].float(), (runs.rewards[rows, steps] > 0).float()
    event = functional.binary_cross_entropy_with_logits(logits[..., 0], happened, counted, reduction="sum")
    ended = runs.ends[rows, steps].float()
    end = functional.binary_cross_entropy_with_logits(logits[..., 1], ended, counted * happened, reduction="sum")
    return (event + end) / len(places)


@torch.inference_mode()
def logits_of(heads: RewardHeads, runs: Judged) -> Tensor:
    """Logits ``[M, N, T, K, 2]`` of every step, before calibration."""
    said = []
    for step in range(runs.latents.shape[1]):
        rows = torch.arange(len(runs))
        said.append(heads(runs.windows(rows, torch.full_like(rows, step), heads.config.window)))
    return torch.stack(said, dim=2)


def chances_of(heads: RewardHeads, runs: Judged) -> np.ndarray:
    """Calibrated probabilities of the events, ``[N, T, K]``."""
    return heads.chances(logits_of(heads, runs)[..., 0]).mean(0).numpy()


def calibrated(heads: RewardHeads, held_out: Judged) -> RewardHeads:
    """The same heads with scales and shifts that fit held-out runs, as often as events are there, and the thresholds
    that declare events best (F1 of `outcomes`)."""
    logits, counted = logits_of(heads, held_out)[..., 0], held_out.counted
    events = (held_out.rewards > 0) & counted
    scales, shifts = _platt(logits, events.float(), counted.float())
    heads.config = replace(heads.config, scales=scales, shifts=shifts)
    chances = heads.chances(logits).mean(0).numpy()
    columns = zip(*(np.moveaxis(np.asarray(x), -1, 0) for x in (chances, events, counted)), strict=True)
    thresholds = tuple(
        float(max(THRESHOLDS, key=lambda level, c=column: outcomes(*c, threshold=level).f1)) for column in columns
    )
    paid = (held_out.rewards * events).sum((0, 1)) / events.sum((0, 1)).clamp_min(1)
    amounts = tuple(value or 1.0 for value in paid.tolist())
    heads.config = replace(heads.config, thresholds=thresholds, amounts=amounts)
    return heads


def _platt(logits: Tensor, events: Tensor, counted: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A scale and a shift per task that make the members' mean probability as likely as possible (Platt scaling).
    Logits are ``[M, N, T, K]``, the rest ``[N, T, K]``."""
    logits, events, counted = (x.clone() for x in (logits, events, counted))  # out of inference mode
    numbers = torch.zeros(2, logits.shape[-1], requires_grad=True)  # logarithm of the scale, and the shift
    optimizer = torch.optim.Adam([numbers], lr=0.05)
    for _ in range(CALIBRATION_STEPS):
        chances = (numbers[0].exp() * logits + numbers[1]).sigmoid().mean(0).clamp(1e-6, 1 - 1e-6)
        loss = functional.binary_cross_entropy(chances, events, counted, reduction="sum") / counted.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scales, shifts = numbers.detach()
    return tuple(scales.exp().tolist()), tuple(shifts.tolist())


def table(heads: RewardHeads, kinds: dict[str, Judged]) -> str:
    """How well each task's events are declared and told from the other steps, for each kind of runs."""
    rows = []
    for kind, runs in kinds.items():
        chances, rewards, counted = chances_of(heads, runs), runs.rewards.numpy(), runs.counted.numpy()
        for column, task in enumerate(heads.tasks):
            own = chances[..., column], rewards[..., column] > 0, counted[..., column]
            found: Outcomes = outcomes(*own, threshold=heads.config.thresholds[column])
            told = f"{auroc(own[0][own[2]], own[1][own[2]]):.3f}"
            rows.append([kind, task, str(found.happened.sum()), f"{found.precision:.2f}", f"{found.recall:.2f}", told])
    return markdown_table(["latents", "task", "events", "precision", "recall", "AUROC of a step"], rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `wp2 train reward`."""
    parser.add_argument("--world", default="doom", help="whose reward is learned (default: %(default)s)")
    parser.add_argument("--data", required=True, type=Path, nargs="+", help="recordings with rewards, to learn from")
    parser.add_argument("--validation", required=True, type=Path, nargs="+", help="of other levels, to calibrate on")
    parser.add_argument("--out", required=True, type=Path, help=f"the world's folder, or a file ({REWARD_FILE})")
    parser.add_argument("--minutes", type=float, default=1.0, help="of fitting; more learns by heart (default: 1)")
    parser.add_argument(
        "--rollouts", type=int, default=400, help="to learn from, and a third as many held out (default: 400)"
    )
    parser.add_argument("--steps", type=int, default=24, help="of a run, from a true start (default: %(default)s)")
    parser.add_argument("--cache", type=Path, help="folder that keeps encoded and generated runs for the next time")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of rollouts (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="of rollouts, cpu or cuda (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, draws and rollouts")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")


def main(args: argparse.Namespace) -> None:
    """Train reward heads and write them."""
    for name in ("minutes", "rollouts", "steps"):
        if not getattr(args, name) > 0:
            raise ValueError(f"--{name} is {getattr(args, name)}; give a number above 0")
    if args.threads:
        torch.set_num_threads(args.threads)
    world = load_world(args.world, args.device, args.dtype)
    tasks = _tasks(args.data)
    runs = RunsOf(world, tasks, args.steps, args.seed, args.cache)
    learned = runs.make(args.data, args.rollouts)
    held_out = runs.make(args.validation, -(-args.rollouts // HELD_OUT))
    config = RewardConfig(tasks, world.config.latent_shape, codec_digest(world.codec))
    heads, began = RewardHeads(config, args.seed), time.monotonic()
    generator = torch.Generator().manual_seed(args.seed)
    fit(heads, joined(*learned), lambda: (time.monotonic() - began) / (60 * args.minutes), generator)
    heads = calibrated(heads, held_out[1])
    print(table(heads, dict(zip(("true", "generated"), held_out, strict=True))))
    file = args.out / REWARD_FILE if args.out.is_dir() else args.out
    save_heads(heads, file)
    print(f"\nwrote {file}, {file.stat().st_size:,} bytes")


def _tasks(data: Sequence[Path]) -> tuple[str, ...]:
    """The tasks that the recordings know the rewards of.

    Raises:
        ValueError: when they know none.
    """
    store = JoinedStore(data)
    tasks = tuple(store[0].rewards) if len(store) else ()
    if not tasks:
        raise ValueError(f"the recordings in {data[0]} hold no rewards; give recordings of `wp2 record doom`")
    return tasks
