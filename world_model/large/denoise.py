"""One network evaluation for a chunk, with its past in a cache (autoregressive) or beside it (bidirectional)."""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.large.context import Memory
from world_model.large.expert import Expert
from world_model.transformer import KeyValue
from world_model.transformer.rotary import grid_positions


def read(
    expert: Expert,
    x: Tensor,
    timestep: float | Tensor,
    first: int,
    rows: Tensor | None,
    text: Tensor,
    context: list[KeyValue] | None = None,
    memory: Memory | None = None,
) -> tuple[Tensor, Tensor]:
    """What an expert's blocks make of a chunk, for any head to read: its tokens ``[B, n * P, D]`` and their noise
    embedding ``[B, n, D]``. All as in `evaluate`."""
    network = expert.transformer
    batch, count = x.shape[:2]
    grid = _grid(expert, x)
    tokens = network.embed_latents(x)
    group = torch.arange(count, device=x.device).repeat_interleave(grid[0] * grid[1])
    positions = grid_positions(torch.arange(first, first + count, device=x.device).float(), grid)
    timesteps = torch.as_tensor(timestep, dtype=torch.float64, device=x.device).expand(batch, count)
    own = tokens.shape[1]
    if memory is not None:
        past = memory.rows.shape[1]
        tokens = torch.cat([memory.tokens, tokens], dim=1)
        group = torch.cat([memory.group, group + past])
        positions = torch.cat([memory.positions, positions])
        timesteps = torch.cat([timesteps.new_zeros(batch, past), timesteps], dim=1)
        rows = None if rows is None else torch.cat([memory.rows, rows], dim=1)
    given = network.steer(group, timesteps, rows, text)
    hidden, _ = network(tokens, given, positions, None, context)
    return hidden[:, -own:], given.time[:, -count:]


def evaluate(
    expert: Expert,
    x: Tensor,
    timestep: float | Tensor,
    first: int,
    rows: Tensor | None,
    text: Tensor,
    context: list[KeyValue] | None = None,
    memory: Memory | None = None,
    call: int | None = None,
) -> tuple[Tensor, ...]:
    """Run an expert on conditioned noisy latents ``x [B, n, 16 + 20, h, w]`` that start at latent ``first``.

    ``timestep`` is 1000 times their noise level, one for all or ``[n]``, ``rows [B, n, 6]`` their actions, ``text
    [B, L, X]`` their caption. The past is given as a cache's ``context`` or as ``memory`` tokens, which then are
    steered by the same caption and see the chunk; neither is a world without a past. Returns the velocity
    ``[B, n, 16, h, w]``, or, with ``call``, the displacement and the endpoint velocity of that few-step head.
    """
    hidden, time = read(expert, x, timestep, first, rows, text, context, memory)
    if call is None:
        return (expert.transformer.velocity(hidden, time, _grid(expert, x)),)
    return expert.transformer.estimates(hidden, time, _grid(expert, x), call)


def _grid(expert: Expert, x: Tensor) -> tuple[int, int]:
    patch = expert.transformer.patch
    return x.shape[-2] // patch, x.shape[-1] // patch
