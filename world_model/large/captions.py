"""Captions whose tokens were made beforehand, so that training keeps no caption encoder of billions of parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class KnownCaptions(nn.Module):
    """Numbers ``[n, 1]`` of captions to their tokens ``[n, length, X]``, padded with zeros.

    Caption ``k`` has the tokens ``tokens[k - 1]``, ``[L, X]`` with ``L`` up to ``length``, and 0 is no caption at all,
    nothing but padding. Tokens stay where they are: those of many recordings would fill a GPU.
    """

    def __init__(self, tokens: Sequence[Tensor], length: int, width: int) -> None:
        super().__init__()
        self.known = [torch.zeros(0, width), *tokens]
        self.length = length

    def forward(self, codes: Tensor) -> Tensor:
        found = [self.known[number].float() for number in codes[:, 0].tolist()]
        return torch.stack([functional.pad(x, (0, 0, 0, self.length - len(x))) for x in found]).to(codes.device)

    def __deepcopy__(self, memo: dict) -> KnownCaptions:
        """Shared, since it never changes: a frozen teacher reads what its student reads."""
        return self

    def train(self, mode: bool = True) -> KnownCaptions:
        """Nothing here learns."""
        return super().train(False)
