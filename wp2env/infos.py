"""One slot's view of a vector environment's infos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def slot_info(infos: Mapping[str, Any], slot: int) -> dict[str, Any]:
    """The ``info`` dictionary of one slot, as a single environment would return it.

    Entries whose mask ``_key`` is False for the slot are left out; NumPy scalars become Python numbers.
    """
    info = {}
    for key, value in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or not mask[slot]:  # the masks themselves have no mask
            continue
        if isinstance(value, Mapping):
            info[key] = slot_info(value, slot)
        else:
            entry = value[slot]
            info[key] = entry.item() if isinstance(entry, np.generic) else entry
    return info
