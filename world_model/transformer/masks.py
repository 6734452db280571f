"""Who sees whom in one training sequence, and where its tokens stand in time (the paper's Fig. 3).

A sequence is ``[sink | compressed | adjacent | targets]``. Its *groups* are the sink latent ``S``, compressed slots
``C_c`` of ``l`` latents each, clean latents ``T_j`` and noisy latents ``N_i``:

    S   -> S
    C_c -> S, the slots that the memory held when c was made, C_c
    T_j -> what N_j sees of the past, and the clean latents of its own chunk
    N_i -> S, the slots that the memory holds before its chunk, the last clean latents before its chunk, its own chunk

which is what the cached rollout offers at every step (`rollout`), so one masked pass over many chunks equals
generating them one after the other, as long as no age is above ``max_age`` and the coarse latents come from decoded
pictures. Latent 0 is a chunk of its own, the start picture; chunks of ``n`` latents follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from world_model.config import WorldConfig
from world_model.thinning import kept_slots, slot_count
from world_model.transformer.rotary import grid_positions

SINK, SLOT, CLEAN, NOISY = "S", "C", "T", "N"
Sees = Callable[[tuple[str, int], tuple[str, int]], bool]  # whether a query sees a key, each a kind and its number


def chunk_of(latent: int, chunk_latents: int) -> int:
    """The chunk that a latent belongs to."""
    return 0 if latent == 0 else (latent - 1) // chunk_latents + 1


def first_of(chunk: int, chunk_latents: int) -> int:
    """The first latent of a chunk."""
    return 0 if chunk == 0 else (chunk - 1) * chunk_latents + 1


@dataclass(frozen=True, eq=False)
class Layout:
    """The groups of one training sequence, in order, and what follows from them."""

    slots: tuple[int, ...]  # compressed slots present
    adjacent: tuple[int, ...]  # latents present as clean tokens, besides the sink
    targets: tuple[int, ...]  # latents present as noisy tokens
    latent: Tensor  # int64 [G], the latent whose time, action and caption a group carries
    group: Tensor  # int64 [N], the group of every token
    positions: Tensor  # float32 [N, 3]
    allowed: Tensor | None  # bool [G, G], query row sees key column; None: everyone sees everyone

    @cached_property
    def mask(self) -> Tensor | None:
        """The same of tokens, bool ``[N, N]``: gigabytes of a long sequence, so it is made once, when it is asked for.

        Columns are chosen first: long rows are then copied whole, several times faster.
        """
        return None if self.allowed is None else self.allowed[:, self.group][self.group]

    @property
    def slot_latents(self) -> Tensor:
        """The latent whose time, action and caption each slot carries, int64 ``[S]``: the last one that it covers."""
        return self.latent[1 : 1 + len(self.slots)]

    @property
    def target_tokens(self) -> slice:
        """Where the noisy tokens are; they come last."""
        return slice(int((self.group < len(self.latent) - len(self.targets)).sum()), None)


@lru_cache(maxsize=128)
def teacher_forcing(config: WorldConfig, latents: int, first_target: int) -> Layout:
    """Chunk-causal targets: of ``latents`` consecutive latents those from ``first_target`` on are generated.

    With ``first_target`` 0 the first latent, too, is a target: it is generated from its caption alone. Slots that a
    rollout has forgotten before the first target are left out; those that remain do not see them either.
    """
    return _history_layout(config, latents, first_target, lambda latent: chunk_of(latent, config.chunk_latents))


@lru_cache(maxsize=128)
def bidirectional(config: WorldConfig, latents: int, first_target: int) -> Layout:
    """The same memory before a clip whose latents all see each other: the latents from ``first_target`` on."""
    clip = chunk_of(first_target, config.chunk_latents)
    return _history_layout(
        config, latents, first_target, lambda latent: min(clip, chunk_of(latent, config.chunk_latents))
    )


def frame_query(config: WorldConfig, latents: int, queried: tuple[int, ...]) -> Layout:
    """Targets that see the sink, every slot of a memory of ``latents`` latents, and nothing else but themselves."""
    memory = config.memory
    slots = kept_slots(slot_count(latents, memory.temporal_stride), memory.temporal_stride, memory.budget_slots)

    def sees(query: tuple[str, int], key: tuple[str, int]) -> bool:
        (kind, index), (other, place) = query, key
        if kind == SLOT and other == SLOT:
            return place <= index
        return other == SINK or (kind == NOISY and other == SLOT) or query == key

    return build_layout(config, slots, _slot_ends(config, slots), (), queried, sees)


def stored_latents(config: WorldConfig, latents: int) -> list[int]:
    """Which of a history of so many latents its compressed memory holds."""
    stride = config.memory.temporal_stride
    slots = kept_slots(slot_count(latents, stride), stride, config.memory.budget_slots)
    return [stride * slot + offset for slot in slots for offset in range(1, stride + 1)]


def _history_layout(config: WorldConfig, latents: int, first_target: int, chunk: Callable[[int], int]) -> Layout:
    """The layout of targets after their history; ``chunk`` says which latents are generated at once."""
    n, stride, window = config.chunk_latents, config.memory.temporal_stride, config.memory.adjacent_latents
    last_chunk = chunk(latents - 1)
    completes = [chunk_of(stride * (c + 1), n) for c in range(slot_count(latents, stride))]

    def kept(before_chunk: int) -> tuple[int, ...]:
        return kept_slots(sum(made < before_chunk for made in completes), stride, config.memory.budget_slots)

    chunks = range(chunk(first_target), last_chunk + 1)
    slots = tuple(sorted({slot for c in chunks for slot in kept(c)}))
    oldest = max(1, _first_latent(chunk, first_target) - window)
    adjacent = tuple(range(oldest, _first_latent(chunk, latents - 1)))

    def sees(query: tuple[str, int], key: tuple[str, int]) -> bool:
        (kind, index), (other, place) = query, key
        if kind == SINK:
            return other == SINK
        if kind == SLOT:
            own = other == SLOT and place <= index and completes[place] == completes[index]
            return other == SINK or own or (other == SLOT and place in kept(completes[index]))
        if other == SINK:
            return chunk(index) > 0
        if other == SLOT:
            return place in kept(chunk(index))
        if chunk(place) == chunk(index):
            return other == kind
        first = _first_latent(chunk, index)
        return other == CLEAN and first - window <= place < first

    targets = tuple(range(first_target, latents))
    return build_layout(config, slots, _slot_ends(config, slots), adjacent, targets, sees)


def _first_latent(chunk: Callable[[int], int], latent: int) -> int:
    """The first latent of the chunk that a latent belongs to."""
    while latent > 0 and chunk(latent - 1) == chunk(latent):
        latent -= 1
    return latent


def _slot_ends(config: WorldConfig, slots: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(config.memory.temporal_stride * (slot + 1) for slot in slots)


def build_layout(
    config: WorldConfig,
    slots: tuple[int, ...],
    slot_latents: tuple[int, ...],
    adjacent: tuple[int, ...],
    targets: tuple[int, ...],
    sees: Sees,
) -> Layout:
    """The layout of these groups, whose slots carry time, action and caption of ``slot_latents``."""
    groups = [(SINK, 0), *((SLOT, c) for c in slots), *((CLEAN, j) for j in adjacent), *((NOISY, i) for i in targets)]
    allowed = torch.tensor([[sees(query, key) for key in groups] for query in groups])
    times = torch.tensor([0, *slot_latents, *adjacent, *targets])
    grids = [config.memory_grid if kind == SLOT else config.token_grid for kind, _ in groups]
    group = torch.arange(len(groups)).repeat_interleave(torch.tensor([rows * columns for rows, columns in grids]))
    positions = [grid_positions(time[None].float(), grid) for time, grid in zip(times, grids, strict=True)]
    return Layout(slots, adjacent, targets, times, group, torch.cat(positions), allowed)
