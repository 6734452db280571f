"""What reward heads learn from: recorded clips with true rewards, as latents, and the same clips as the world dreams
them under the recorded actions. Heads only ever judge generated latents, so they have to learn from such, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from world_model.checkpoint import WEIGHTS
from world_model.codec import to_unit
from world_model.data.clips import Clip
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore, sha256_of
from world_model.files import whole
from world_model.rollout import WorldStream
from world_model.world import World

CONTEXT = 4  # recorded frames that a rollout begins from, the first included, where the clip has so many before it
SLOTS = 16  # rollouts side by side


@dataclass(frozen=True)
class Judged:
    """``N`` runs of ``T`` latents with the truth about ``K`` tasks; the first latent is the start and not judged."""

    latents: Tensor  # float16 [N, T, C, h, w]
    rewards: Tensor  # float32 [N, T, K]
    ends: Tensor  # bool [N, T, K], the event of this step ended the task
    # bool [N, T, K], the step's reward says what it shows. A task that has ended pays nothing more, though its goal may
    # still be in view, so the steps after it teach nothing; neither does an end without an event.
    counted: Tensor

    def __len__(self) -> int:
        return len(self.latents)

    def windows(self, rows: Tensor, steps: Tensor, count: int) -> Tensor:
        """Latents ``[B, count, C, h, w]`` up to and with step ``steps [B]`` of runs ``rows [B]``. Before the start
        there is more of the start."""
        places = (steps[:, None] + torch.arange(1 - count, 1)).clamp_min(0)
        return self.latents[rows[:, None], places].float()


@dataclass(frozen=True)
class Case:
    """A window of a clip: ``steps + 1`` frames from ``start`` on, and what came before it."""

    clip: Clip
    start: int
    steps: int

    @property
    def context(self) -> slice:
        """The frames that a rollout begins from."""
        return slice(max(0, self.start + 1 - CONTEXT), self.start + 1)


def joined(*parts: Judged) -> Judged:
    """All runs of all parts."""
    return Judged(*(torch.cat([getattr(part, item.name) for part in parts]) for item in fields(Judged)))


def choose_cases(
    store: ClipStore | JoinedStore, tasks: Sequence[str], steps: int, generator: torch.Generator
) -> list[Case]:
    """A window from each clip that is long enough, in an order that is drawn; where a task was rewarded in the clip
    the window has the first reward of one of them.

    Raises:
        ValueError: when no clip is long enough, or one has no rewards for one of the tasks.
    """
    long_enough = [index for index in range(len(store)) if store.length(index) > steps]
    if not long_enough:
        raise ValueError(
            f"none of the recorded clips has more than {steps} frames; record longer ones with `wp2 record doom`, or "
            "ask for shorter runs with --steps"
        )
    order = torch.randperm(len(long_enough), generator=generator).tolist()
    return [_window(store[long_enough[index]], tasks, steps, generator) for index in order]


def _window(clip: Clip, tasks: Sequence[str], steps: int, generator: torch.Generator) -> Case:
    missing = [task for task in tasks if task not in clip.rewards]
    if missing:
        known = ", ".join(map(repr, clip.rewards)) or "none"
        raise ValueError(f"a clip knows no reward for {missing[0]!r}, it knows {known}; give recordings that do")
    low, high = 0, len(clip.frames) - steps - 1
    rewarded = [int(clip.rewards[task].argmax()) for task in tasks if clip.rewards[task].any()]
    if rewarded:
        event = rewarded[int(torch.randint(len(rewarded), (), generator=generator))]
        low, high = max(low, min(event - steps, high)), max(low, min(event - 1, high))
    return Case(clip, int(torch.randint(low, high + 1, (), generator=generator)), steps)


@torch.inference_mode()
def true_runs(world: World, cases: Sequence[Case], tasks: Sequence[str]) -> Judged:
    """The cases' own frames, encoded."""
    latents = []
    for case in tqdm(cases, desc="encoding clips", unit="clip"):
        frames = case.clip.frames[case.start : case.start + case.steps + 1]
        latents.append(world.codec.encode(to_unit(torch.tensor(frames)).to(world.device)[None])[0].half().cpu())
    return _judged(torch.stack(latents), cases, tasks)


@torch.inference_mode()
def generated_runs(world: World, cases: Sequence[Case], tasks: Sequence[str], seed: int) -> Judged:
    """The same as the world generates it under the clips' actions and captions, case ``i`` with seed ``seed + i``."""
    latents = []
    with tqdm(total=len(cases) * cases[0].steps, desc="rolling out", unit="latent") as bar:
        for first in range(0, len(cases), SLOTS):
            part = cases[first : first + SLOTS]
            stream = world.stream(len(part))
            stream.reset(
                list(range(len(part))),
                [case.clip.frames[case.context] for case in part],
                [case.clip.caption_at(case.start) for case in part],
                [seed + first + slot for slot in range(len(part))],
                actions=[torch.tensor(case.clip.actions[case.context]) for case in part],
            )
            shown = [stream.latents[:, -1].half().cpu()]
            for step in range(1, part[0].steps + 1):
                _follow_captions(stream, part, step)
                stream.step(torch.stack([torch.tensor(case.clip.actions[case.start + step]) for case in part])[:, None])
                shown.append(stream.latents[:, -1].half().cpu())
                bar.update(len(part))
            latents.append(torch.stack(shown, dim=1))
    return _judged(torch.cat(latents), cases, tasks)


def _follow_captions(stream: WorldStream, cases: Sequence[Case], step: int) -> None:
    for slot, case in enumerate(cases):
        caption = case.clip.caption_at(case.start + step)
        if caption != stream.captions[slot]:
            stream.set_caption([slot], **caption.as_dict())


def _judged(latents: Tensor, cases: Sequence[Case], tasks: Sequence[str]) -> Judged:
    """Latents ``[N, T, C, h, w]`` of cases with the truth of their steps."""
    tables = [_truth(case, tasks) for case in cases]
    return Judged(latents, *(torch.stack(column) for column in zip(*tables, strict=True)))


def _truth(case: Case, tasks: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, ends and what counts, ``[T, K]`` each."""
    rewards = torch.stack([torch.tensor(case.clip.rewards[task]) for task in tasks], dim=-1).float()
    ended = torch.stack([torch.tensor(case.clip.terminated[task]) for task in tasks], dim=-1)
    before = torch.cat([ended.new_zeros(1, len(tasks)), ended.cummax(0).values[:-1]])
    counted = ~before & ~(ended & (rewards <= 0))
    window = slice(case.start, case.start + case.steps + 1)
    counted = counted[window].clone()
    counted[0] = False
    return rewards[window], ended[window] & (rewards[window] > 0), counted


@dataclass(frozen=True)
class RunsOf:
    """Makes the runs of recordings in a world, and keeps them in a folder for the next time."""

    world: World
    tasks: tuple[str, ...]
    steps: int
    seed: int
    cache: Path | None = None

    def make(self, data: Sequence[Path], rollouts: int) -> tuple[Judged, Judged]:
        """A run of true latents of each clip that is long enough, and of generated ones of the first ``rollouts`` of
        these clips, in an order that is drawn.

        Raises:
            ValueError: when no clip is long enough or a task is unknown to one.
        """
        store = JoinedStore(data)
        file = None if self.cache is None else self.cache / f"runs-{self._key(store, rollouts)}.safetensors"
        if file is not None and file.is_file():
            tensors = load_file(file)
            return tuple(
                Judged(*(tensors[f"{kind}.{item.name}"] for item in fields(Judged))) for kind in ("true", "generated")
            )
        cases = choose_cases(store, self.tasks, self.steps, torch.Generator().manual_seed(self.seed))
        true = true_runs(self.world, cases, self.tasks)
        pair = true, generated_runs(self.world, cases[:rollouts], self.tasks, self.seed)
        if file is not None:
            self._keep(pair, file)
        return pair

    def _keep(self, pair: tuple[Judged, Judged], file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        named = zip(("true", "generated"), pair, strict=True)
        tensors = {
            f"{kind}.{item.name}": getattr(runs, item.name).contiguous()
            for kind, runs in named
            for item in fields(Judged)
        }
        with whole(file) as part:
            save_file(tensors, part)

    def _key(self, store: JoinedStore, rollouts: int) -> str:
        weights = "" if self.world.path is None else sha256_of(Path(self.world.path) / WEIGHTS)
        dtype = self.world.transformer.head.weight.dtype
        told = (store.digest, weights, str(dtype), self.tasks, self.steps, self.seed, rollouts)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]
