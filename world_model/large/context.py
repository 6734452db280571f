"""The published memory ``[sink | compressed | adjacent]`` (Eq. 4): its tokens, its places in time, its cache.

Sink and adjacent latents stand at their own index at full size; compressed token frame ``j`` stands at ``2 j`` on its
small grid, whose rows and columns are not stretched. Every memory token carries timestep 0, its own conditioning
channels and the action row of its latent (of latent ``2 j`` for frame ``j``). Keys are cached rotated: positions are
absolute, so nothing changes when the rollout goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from world_model.large.compressor import REACH, TEMPORAL_STRIDE
from world_model.large.expert import Expert
from world_model.transformer import Conditioning, KeyValue
from world_model.transformer.rotary import grid_positions, rotary_table, rotate

FRAMES_PER_GROUP = 2  # compressed frames that see each other, whatever the chunk's length
SINK, ADJACENT = -1, 1 << 30  # ranks of what is not compressed: a token sees those of its own rank and lower ones


@dataclass
class History:
    """The finished part of ``B`` rollouts: latents with their conditioning, and their actions."""

    latents: Tensor  # [B, T, 16 + 20, h, w]
    small: Tensor  # [B, T / 2, 16 + 20, h / 4, w / 4], those of the small video
    rows: Tensor  # [B, T, 6]

    def followed_by(self, new: History) -> History:
        """This history and what came after it."""
        return History(*(torch.cat(pair, dim=1) for pair in zip(vars(self).values(), vars(new).values(), strict=True)))


class Memory(NamedTuple):
    """Tokens of (a part of) a history. A group is one latent, or one compressed frame."""

    tokens: Tensor  # [B, N, D]
    group: Tensor  # int64 [N]
    positions: Tensor  # float [N, 3]
    rows: Tensor  # [B, G, 6]
    rank: Tensor  # int64 [N], see `SINK`


def remember(expert: Expert, history: History, sink: int, adjacent: int, known_frames: int = 0) -> Memory:
    """The memory of a history; with ``known_frames`` only what a cache of that many compressed frames still lacks.

    Only the part of the history that the new tokens depend on is compressed.
    """
    network = expert.transformer
    count, frames = history.latents.shape[1], history.small.shape[1]
    start = max(0, TEMPORAL_STRIDE * (known_frames + 1) - REACH)
    fine = expert.compressor(history.latents[:, start:])
    coarse = network.embed_latents(history.small[:, known_frames:])
    compressed = coarse + fine[:, -coarse.shape[1] :]
    sinks = range(0) if known_frames else range(sink)
    kept = range(count - adjacent, count)
    pieces = [
        network.embed_latents(history.latents[:, : len(sinks)]),
        compressed,
        network.embed_latents(history.latents[:, kept.start :]),
    ]
    slots = range(known_frames, frames)
    times = [*sinks, *(TEMPORAL_STRIDE * frame for frame in slots), *kept]
    ranks = [SINK] * len(sinks) + [frame // FRAMES_PER_GROUP for frame in slots] + [ADJACENT] * adjacent
    full = _grid(history.latents, network.patch)
    grids = [full] * len(sinks) + [_grid(history.small, network.patch)] * len(slots) + [full] * adjacent
    device = history.latents.device
    sizes = torch.tensor([rows * columns for rows, columns in grids])
    places = [grid_positions(torch.tensor([float(time)]), grid) for time, grid in zip(times, grids, strict=True)]
    return Memory(
        tokens=torch.cat(pieces, dim=1),
        group=torch.arange(len(times)).repeat_interleave(sizes).to(device),
        positions=torch.cat(places).to(device),
        rows=history.rows[:, times],
        rank=torch.tensor(ranks).repeat_interleave(sizes).to(device),
    )


def steer_memory(expert: Expert, memory: Memory, text: Tensor) -> Conditioning:
    """The conditioning of memory tokens: timestep 0, their own actions, the caption in force."""
    return expert.transformer.steer(memory.group, torch.zeros_like(memory.rows[..., 0]), memory.rows, text)


@dataclass
class MemoryCache:
    """Rotated keys and values of a memory, per block, in the order ``[sink | compressed | adjacent]``."""

    pairs: list[KeyValue]
    frames: int  # compressed frames in it
    lasting: int  # tokens before the adjacent ones, which stay when the rollout goes on

    def context(self, room: int) -> list[KeyValue]:
        """What a chunk of ``room`` tokens sees; these fill the end."""
        return _with_room(self.pairs, room)


@torch.no_grad()  # the context is written in place
def extend_cache(
    expert: Expert, cache: MemoryCache | None, history: History, text: Tensor, sink: int, adjacent: int
) -> MemoryCache:
    """The cache once ``history`` has grown by a chunk whose caption is ``text [B, L, X]``.

    Sink and compressed tokens already cached keep their keys and values, whatever the caption was then; the adjacent
    latents are replaced. Compressed tokens see the sink and the compressed groups up to their own, adjacent ones all.
    """
    known = 0 if cache is None else cache.frames
    memory = remember(expert, history, sink, adjacent, known)
    prefix = [] if cache is None else [KeyValue(*(x[:, :, : cache.lasting] for x in pair)) for pair in cache.pairs]
    before = cache.lasting if cache is not None else 0
    count = memory.tokens.shape[1]
    own = memory.rank[None] <= memory.rank[:, None]
    mask = torch.cat([own.new_ones(count, before), own], dim=1)[None, None]
    context = _with_room(prefix, count) if prefix else None
    given = steer_memory(expert, memory, text)
    _, new = expert.transformer(memory.tokens, given, memory.positions, mask, context)
    if context is None:
        table = rotary_table(memory.positions, expert.transformer.head_width)
        context = [KeyValue(rotate(pair.key, table), pair.value) for pair in new]
    rows, columns = _grid(history.latents, expert.transformer.patch)
    lasting = before + count - adjacent * rows * columns
    return MemoryCache(context, history.small.shape[1], lasting)


def _grid(latents: Tensor, patch: int) -> tuple[int, int]:
    return latents.shape[-2] // patch, latents.shape[-1] // patch


def _with_room(pairs: list[KeyValue], room: int) -> list[KeyValue]:
    """Copies with ``room`` unused entries at the end."""
    grown = []
    for pair in pairs:
        batch, heads, length, head = pair.key.shape
        both = pair.key.new_empty(2, batch, heads, length + room, head)
        both[0, :, :, :length], both[1, :, :, :length] = pair
        grown.append(KeyValue(*both))
    return grown
