"""Who sees whom in one training sequence (the paper's Fig. 3), and where its tokens stand in time.

A sequence is ``[sink | compressed | adjacent | targets]``. Its *groups* are the sink latent ``S``, one compressed slot
``C_c`` for every ``l`` latents, clean latents ``T_j`` and noisy latents ``N_i``:

    S   -> S
    C_c -> S, C_0 .. C_c
    T_j -> what N_j sees of the past, and the clean latents of its own chunk
    N_i -> S, the slots completed before its chunk, the last clean latents before its chunk, its own chunk

which is exactly what the cached rollout offers at every step (`rollout`), so one masked pass over many chunks equals
generating them one after the other. Latent 0 is a chunk of its own, the start picture; chunks of ``n`` latents follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from world_model.config import WorldConfig
from world_model.transformer.rotary import grid_positions


def chunk_of(latent: int, chunk_latents: int) -> int:
    """The chunk that a latent belongs to."""
    return 0 if latent == 0 else (latent - 1) // chunk_latents + 1


def first_of(chunk: int, chunk_latents: int) -> int:
    """The first latent of a chunk."""
    return 0 if chunk == 0 else (chunk - 1) * chunk_latents + 1


@dataclass(frozen=True)
class Layout:
    """The groups of one teacher-forcing sequence, in order, and what follows from them."""

    slots: int  # compressed slots; slot c covers the latents up to ``temporal_stride * (c + 1)``
    adjacent: tuple[int, ...]  # latents present as clean tokens, besides the sink
    targets: tuple[int, ...]  # latents present as noisy tokens
    latent: Tensor  # int64 [G], the latent whose time, action and caption a group carries
    group: Tensor  # int64 [N], the group of every token
    positions: Tensor  # float32 [N, 3]
    mask: Tensor  # bool [N, N], query row sees key column

    @property
    def target_tokens(self) -> slice:
        """Where the noisy tokens are; they come last."""
        return slice(int((self.group < len(self.latent) - len(self.targets)).sum()), None)


@lru_cache(maxsize=32)
def teacher_forcing(config: WorldConfig, latents: int, first_target: int) -> Layout:
    """The layout for ``latents`` consecutive latents of which those from ``first_target`` on are generated.

    With ``first_target`` 0 the first latent, too, is a target: it is generated from its caption alone.
    """
    n, stride, window = config.chunk_latents, config.memory.temporal_stride, config.memory.adjacent_latents
    last_chunk = chunk_of(latents - 1, n)
    completes = [chunk_of(stride * (c + 1), n) for c in range((latents - 1) // stride)]
    completes = [chunk for chunk in completes if chunk < last_chunk]
    oldest = max(1, first_of(chunk_of(first_target, n), n) - window)
    adjacent = tuple(range(oldest, first_of(last_chunk, n)))
    targets = tuple(range(first_target, latents))

    groups = [("S", 0)] + [("C", c) for c in range(len(completes))]
    groups += [("T", j) for j in adjacent] + [("N", i) for i in targets]

    def sees(query: tuple[str, int], key: tuple[str, int]) -> bool:
        (kind, index), (other, place) = query, key
        if kind == "S":
            return other == "S"
        if kind == "C":
            return other == "S" or (other == "C" and place <= index)
        chunk = chunk_of(index, n)
        if other == "S":
            return chunk > 0
        if other == "C":
            return completes[place] < chunk
        if chunk_of(place, n) == chunk:
            return other == kind
        first = first_of(chunk, n)
        return other == "T" and first - window <= place < first

    allowed = torch.tensor([[sees(query, key) for key in groups] for query in groups])
    latent = torch.tensor([stride * (i + 1) if kind == "C" else i for kind, i in groups])
    rows, columns = config.token_grid
    memory_rows, memory_columns = config.memory_grid
    sizes = torch.tensor([memory_rows * memory_columns if kind == "C" else rows * columns for kind, _ in groups])
    group = torch.arange(len(groups)).repeat_interleave(sizes)
    positions = [
        grid_positions(time[None].float(), config.memory_grid if kind == "C" else config.token_grid)
        for time, (kind, _) in zip(latent, groups, strict=True)
    ]
    return Layout(
        slots=len(completes),
        adjacent=adjacent,
        targets=targets,
        latent=latent,
        group=group,
        positions=torch.cat(positions),
        mask=allowed[group][:, group],
    )
