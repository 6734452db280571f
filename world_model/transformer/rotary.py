"""Rotary positions over time, height and width (interleaved pairs, base 10000)."""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 10_000.0


def axis_sizes(head: int) -> tuple[int, int, int]:
    """How a head of even size splits between time, height and width; 128 gives (44, 42, 42)."""
    spatial = 2 * (head // 6)
    return head - 2 * spatial, spatial, spatial


def rotary_table(positions: Tensor, head: int) -> Tensor:
    """Rotation angles' cosine and sine for ``positions [..., N, 3]`` (t, y, x): float32 ``[2, ..., N, head / 2]``."""
    angles = []
    for axis, size in enumerate(axis_sizes(head)):
        exponents = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size
        angles.append(positions[..., axis, None].double() * BASE**-exponents)
    angle = torch.cat(angles, dim=-1)
    return torch.stack([angle.cos(), angle.sin()]).float()


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate queries or keys ``[B, heads, N, head]`` by a table ``[2, N, head / 2]`` or ``[2, B, 1, N, head / 2]``."""
    cosine, sine = table.to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


def rotate_into(out: Tensor, x: Tensor, table: Tensor) -> None:
    """Write `rotate` of ``x`` to ``out`` in one pass over memory, as a product of complex numbers, for tensors that are
    large; float32, and without gradients."""
    turn, pairs = torch.complex(*table), torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    if out.dtype == torch.float32:
        torch.mul(pairs, turn, out=torch.view_as_complex(out.unflatten(-1, (-1, 2))))
    else:
        out.copy_(torch.view_as_real(pairs * turn).flatten(-2))


def grid_positions(times: Tensor, grid: tuple[int, int]) -> Tensor:
    """Positions ``[..., G * rows * columns, 3]`` of the tokens of groups at ``times [..., G]``, row by row."""
    rows, columns = grid
    y = torch.arange(rows, device=times.device).repeat_interleave(columns)
    x = torch.arange(columns, device=times.device).repeat(rows)
    space = torch.stack([y, x], dim=-1).to(times.dtype)
    space = space.expand(*times.shape, rows * columns, 2)
    time = times[..., None, None].expand(*times.shape, rows * columns, 1)
    return torch.cat([time, space], dim=-1).flatten(-3, -2)
