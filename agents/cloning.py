"""Behaviour cloning: a policy that does what the players of recordings did, with the same data and no world model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional

from agents.policies.card import CLONED, CLONING, PolicyCard
from agents.policies.cloned import CloneNetwork
from world_model.controls import PERSPECTIVE
from world_model.data.store import ClipStore
from world_model.files import whole
from wp2env.spaces import DiscreteActions, Turns

CLIPS, FRAMES = 32, 8  # of a batch, and of each clip: opening a clip takes longer than reading a frame
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4


def clone(
    store: ClipStore,
    out: Path,
    *,
    task: str | None = None,
    steps: int = 2000,
    seed: int = 0,
    watch: Callable[[int, float], None] | None = None,
) -> Path:
    """Learn which choice of the menu is nearest to what was done after each frame of a recording.

    Args:
        store: recordings.
        out: folder of the policy; one that is there is replaced.
        task: learn from the clips that fulfil this task alone, up to the frame that does; None for all clips.
        steps: gradient steps of 256 frames each.
        seed: of the weights and of the order of frames.
        watch: is called with the number of steps and the loss (nats) after each one.

    Returns:
        The policy's folder, for `load_policy`.

    Raises:
        ValueError: for recordings that hold nothing to learn from.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; give at least 1")
    lengths = _lengths(store, task)
    size = store.window(int(np.flatnonzero(lengths)[0]), 0, 1).frames.shape[1:3]
    with torch.random.fork_rng(devices=[]):  # layers know no generator of their own
        torch.manual_seed(seed)
        network = CloneNetwork(size)
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    batches = _batches(store, lengths, np.random.default_rng(seed))
    for step in range(1, steps + 1):
        frames, choices = next(batches)
        loss = functional.cross_entropy(network(frames), choices)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watch is not None:
            watch(step, loss.item())
    return _save(
        out,
        network,
        PolicyCard(CLONING, "discrete", size, 1, task or "any", "recordings", str(store.path), steps, seed),
    )


def _lengths(store: ClipStore, task: str | None) -> np.ndarray:
    """How many frames of each clip are followed by an action to imitate, int64 ``[clips]``."""
    lengths = np.array([store.length(clip) - 1 for clip in range(len(store))], dtype=np.int64)
    if task is not None:
        for clip in range(len(store)):
            rewards = store[clip].rewards
            if task not in rewards:
                raise ValueError(f"{store.path} knows no task {task!r}; it knows {', '.join(rewards) or 'none'}")
            fulfilled = np.flatnonzero(rewards[task] > 0)
            lengths[clip] = fulfilled[0] if len(fulfilled) else 0
    if not lengths.sum():
        what = "no clip with two frames" if task is None else f"no clip that fulfils {task!r}"
        raise ValueError(f"{store.path} holds {what}; record more")
    return lengths


def _batches(
    store: ClipStore, lengths: np.ndarray, random: np.random.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Frames uint8 ``[256, H, W, 3]``, all equally likely, and the choices ``[256]`` that followed them."""
    ends, menu = np.cumsum(lengths), DiscreteActions(Turns())
    while True:
        frames, choices = [], []
        for clip in np.searchsorted(ends, random.integers(ends[-1], size=CLIPS), side="right").tolist():
            recorded, times = store[clip], random.integers(lengths[clip], size=FRAMES)
            frames.append(recorded.frames[times])
            rows, views = recorded.actions[times + 1], recorded.actions[times, PERSPECTIVE].astype(np.int64)
            choices += [menu.action(row, int(view)) for row, view in zip(rows, views, strict=True)]
        yield torch.from_numpy(np.concatenate(frames)), torch.from_numpy(np.array(choices))


def _save(out: Path, network: CloneNetwork, card: PolicyCard) -> Path:
    """Write weights and card, each under a temporary name first."""
    out.mkdir(parents=True, exist_ok=True)
    with whole(out / CLONED) as part:
        save_file(network.state_dict(), part)
        part.chmod(0o644)  # safetensors writes for the owner alone; policies are shared
    card.save(out)
    return out
