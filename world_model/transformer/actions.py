"""Action embedding (Eq. 1) and the action residual before each FFN (Eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.controls import JUMP, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW


class ActionEmbedding(nn.Module):
    """``e = E(pitch, yaw) + sum of one table row per discrete column`` (Eq. 1): rows ``[..., 6]`` to ``[..., D]``."""

    def __init__(self, width: int, hidden: tuple[int, int], camera_scale: float) -> None:
        super().__init__()
        first, second = hidden
        self.camera = nn.Sequential(
            nn.Linear(2, first), nn.SiLU(), nn.Linear(first, second), nn.SiLU(), nn.Linear(second, width)
        )
        self.discrete = nn.ModuleList(nn.Embedding(size, width) for size in (3, 3, 2, 2))
        self.camera_scale = camera_scale
        for table in self.discrete:
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, rows: Tensor) -> Tensor:
        degrees = rows[..., [PITCH, YAW]] * self.camera_scale
        embedded = self.camera(degrees.to(self.camera[0].weight.dtype))
        columns = ((LONGITUDINAL, 1, 2), (LATERAL, 1, 2), (PERSPECTIVE, 0, 1), (JUMP, 0, 1))
        for table, (column, offset, largest) in zip(self.discrete, columns, strict=True):
            embedded = embedded + table((rows[..., column].round().long() + offset).clamp(0, largest))
        return embedded


class ActionResidual(nn.Module):
    """``h + F([h, e])`` (Eq. 2). The last layer starts at zero, so an untrained branch changes nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, h: Tensor, e: Tensor, group: Tensor) -> Tensor:
        """Tokens ``h [B, N, D]``, actions ``e [B, G, D]`` of their groups, and the group of every token ``[N]``."""
        of_tokens, of_actions = self.hidden.weight.chunk(2, dim=1)
        # Linear([h, e]) in two halves: the half of e is the same for all tokens of a group and computed once.
        shared = functional.linear(e, of_actions, self.hidden.bias)
        hidden = functional.linear(h, of_tokens) + torch.index_select(shared, 1, group)
        return h + self.out(functional.silu(hidden))
