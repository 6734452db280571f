"""What a bounded memory forgets: the history is thinned so that its spacing grows with age.

Which slot goes depends on the slots' times alone, never on what they hold. Training can therefore show a network
which slots a rollout will have kept, for histories as long as its recordings (`transformer.masks`).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def redundant_entry(times: Tensor) -> Tensor:
    """Which of the ascending ``times [B, K]`` to forget: an empty one (negative), else the one whose loss widens the
    relative gap between its neighbours least. The oldest and the newest are never chosen, so spacing ends up about
    proportional to age.
    """
    newest = times[:, -1:]
    gap = (times[:, 2:] - times[:, :-2]).float()
    age = (newest - times[:, 1:-1]).float()
    choice = (gap / (age + 1)).argmin(dim=1) + 1
    return torch.where(times[:, 0].lt(0), torch.zeros_like(choice), choice)


def slot_count(latents: int, stride: int) -> int:
    """How many slots are complete once ``latents`` latents exist; slot ``c`` ends with latent ``l * (c + 1)``."""
    return max(0, (latents - 1) // stride)


@lru_cache(maxsize=256)
def kept_slots(complete: int, stride: int, budget: int) -> tuple[int, ...]:
    """The slots that a rollout still holds when so many are complete, oldest first."""
    kept: tuple[int, ...] = ()
    for slot in range(complete):
        kept += (slot,)
        if len(kept) > budget:
            dropped = int(redundant_entry(torch.tensor([[stride * (c + 1) for c in kept]]))) if budget else 0
            kept = kept[:dropped] + kept[dropped + 1 :]
    return kept
