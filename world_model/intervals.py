"""Estimates with the interval that they may be off by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95  # of all intervals
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate, its 95 % interval and how many values it rests on."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def text(self, decimals: int) -> str:
        """``mean [low, high]`` with so many decimals."""
        return f"{self.mean:.{decimals}f} [{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


def bootstrap(
    values: Sequence[float] | np.ndarray,
    seed: int = 0,
    groups: Sequence[object] | None = None,
    statistic: Callable[..., np.ndarray] = np.mean,
) -> Interval:
    """A statistic of ``values [n]`` with its percentile bootstrap interval.

    With ``groups``, one label per value, whole groups are drawn again: values that share a level or an episode are
    not independent, and an interval that takes them for independent is too narrow.

    Raises:
        ValueError: for no values, or another number of groups than values.
    """
    values = np.asarray(values, dtype=np.float64)
    labels = np.arange(len(values)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if not len(values) or len(labels) != len(values):
        raise ValueError(
            f"there are {len(values)} values and {len(labels)} groups; give at least one, and as many of each"
        )
    members = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(members), size=(RESAMPLES, len(members)))
    estimates = [statistic(values[np.concatenate([members[k] for k in row])]) for row in drawn]
    low, high = np.quantile(estimates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(statistic(values)), float(low), float(high), len(values))
