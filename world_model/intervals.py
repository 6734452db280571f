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
    groups = range(len(values)) if groups is None else groups
    if not len(values) or len(groups) != len(values):
        raise ValueError(
            f"there are {len(values)} values and {len(groups)} groups; give at least one, and as many of each"
        )
    together = members(groups)
    drawn = np.random.default_rng(seed).integers(len(together), size=(RESAMPLES, len(together)))
    estimates = [statistic(values[np.concatenate([together[k] for k in row])]) for row in drawn]
    return percentile_interval(statistic(values), estimates, len(values))


def percentile_interval(estimate: float, estimates: Sequence[float] | np.ndarray, count: int) -> Interval:
    """An estimate with the interval that holds 95 % of the ``estimates [R]`` of resamples; nan for no resamples."""
    low, high = ends(estimates) if len(estimates) else (np.nan, np.nan)
    return Interval(float(estimate), float(low), float(high), count)


def ends(estimates: Sequence[float] | np.ndarray) -> np.ndarray:
    """Between which 95 % of the ``estimates [R, ...]`` of resamples lie: ``[2, ...]``."""
    return np.quantile(estimates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)


def drawn_again(count: int, rng: np.random.Generator) -> np.ndarray:
    """How often each of ``count`` values is drawn in every resample, int64 ``[R, count]``."""
    return rng.multinomial(count, np.full(count, 1 / count), RESAMPLES)


def members(groups: Sequence[object]) -> list[np.ndarray]:
    """The places of each group's members, in the groups' order."""
    labels = np.unique(np.asarray(groups), return_inverse=True)[1]
    return [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
