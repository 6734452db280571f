"""There and back again: one world with different memories walks the same ways (for `benchmarks.revisit`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from world_model.data.clips import Clip
from world_model.rollout import WorldStream
from world_model.world import World

NONE, WINDOW, FULL = "no memory", "raw window", "full context"
COMPRESSED, SMALL, SHUFFLED = "compressed", "compressed, 1/8 of the tokens", "compressed, shuffled"
FEWER = 8  # times the tokens of the full context, for the smaller compressed memory


@dataclass(frozen=True)
class Variant:
    """A world with one kind of memory."""

    world: World
    shuffled: bool = False  # whether rollouts exchange their compressed memories before they turn back


@dataclass(frozen=True)
class Rollout:
    """One variant's frames over a whole there and back, and what its memory cost."""

    frames: Tensor  # uint8 [B, 1 + 2 n, H, W, 3]; those that were observed are the true ones
    tokens: Tensor  # float32 [B], tokens of context, mean over the way back


def variants(world: World, full: World, way: int) -> dict[str, Variant]:
    """The contestants; ``full`` may have been trained with full context."""
    memory = world.config.memory

    def bounded(of: World, adjacent: int) -> Variant:
        return Variant(of.with_memory(replace(memory, budget_slots=0, adjacent_latents=adjacent)))

    n = world.config.chunk_latents
    return {
        NONE: bounded(world, n),
        WINDOW: bounded(world, memory.adjacent_latents),
        FULL: bounded(full, 2 * way),
        COMPRESSED: Variant(world),
        SMALL: Variant(world.with_memory(replace(memory, budget_slots=affordable_slots(world, way)))),
        SHUFFLED: Variant(world, shuffled=True),
    }


def affordable_slots(world: World, way: int) -> int:
    """Compressed slots that fit, with all else a memory holds, into an eighth of the full context's tokens: those of
    all latents so far, averaged over the way back. At least 2, the fewest that a memory can be thinned to."""
    config = world.config
    full, small = (rows * columns for rows, columns in (config.token_grid, config.memory_grid))
    everything = full * (1 + 3 * way) / 2  # from way + 1 to 2 way latents
    fixed = full * (config.memory.sink_latents + config.memory.adjacent_latents)
    return max(2, min(config.memory.budget_slots, int((everything / FEWER - fixed) // small)))


@torch.inference_mode()
def roll(variant: Variant, clips: Sequence[Clip], seeds: list[int], observed: int, bar: tqdm) -> Rollout:
    """There and back: frames 1 to ``observed`` are taken in, those after them are generated."""
    frames = torch.from_numpy(np.stack([clip.frames for clip in clips]))
    rows = torch.from_numpy(np.stack([clip.actions for clip in clips]))
    n, way = variant.world.config.chunk_latents, (frames.shape[1] - 1) // 2
    stream = variant.world.stream(len(clips))
    stream.reset(
        range(len(clips)), list(frames[:, :1]), [clip.caption_at(0) for clip in clips], seeds, list(rows[:, :1])
    )
    shown, tokens = [frames[:, :1]], []
    for first in range(1, frames.shape[1], n):
        _follow_captions(stream, clips, first)
        if first == way + 1 and variant.shuffled:
            stream.exchange_memories([(slot + 1) % len(clips) for slot in range(len(clips))])
        if first > way:
            tokens.append(stream.context_tokens)
        if first + n - 1 <= observed:
            stream.observe(frames[:, first : first + n], rows[:, first : first + n])
            shown.append(frames[:, first : first + n])
        else:
            shown.append(stream.step(rows[:, first : first + n]).cpu())
            bar.update(len(clips) * n)
    return Rollout(torch.cat(shown, dim=1), torch.stack(tokens).float().mean(dim=0).cpu())


def _follow_captions(stream: WorldStream, clips: Sequence[Clip], first: int) -> None:
    """Give the slots the captions of frame ``first``."""
    for slot, clip in enumerate(clips):
        caption = clip.caption_at(first)
        if caption != stream.captions[slot]:
            stream.set_caption([slot], **caption.as_dict())
