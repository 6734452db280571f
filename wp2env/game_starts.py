"""Starts of tasks as a bank, which both the true game and the generated world begin from (needs ViZDoom)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from world_model.controls import FIRST_PERSON
from world_model.data.doom.task_starts import TARGETS, TaskStart, record_task_starts
from world_model.data.doom.tasks import EXPLORE
from wp2env.starts import StartBank

OWN_STARTS, OWN_SPLIT = 16, "test"  # of a true game that was given none


def bank_of(starts: Sequence[TaskStart]) -> StartBank:
    """Recorded starts as a bank."""
    return StartBank(
        np.stack([start.frames for start in starts]),
        tuple(start.caption for start in starts),
        np.full(len(starts), FIRST_PERSON, np.uint8),
        np.stack([start.actions for start in starts]),
        tuple(start.origin for start in starts),
    )


@lru_cache(maxsize=len(TARGETS))
def own_bank(task: str) -> StartBank:
    """16 starts of the task, or of exploring where there is no task of that name, in levels of the split "test".

    Recorded once per process, in about a second, and always the same.
    """
    known = task if task in TARGETS else EXPLORE
    return bank_of(list(record_task_starts(known, OWN_STARTS, split=OWN_SPLIT)))
