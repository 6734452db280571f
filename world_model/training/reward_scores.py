"""How well events are declared: run by run, within a few steps of when they happened."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TOLERANCE = 2  # steps that a declaration may be early or late; a generated world seldom keeps time to the step


class Outcomes(NamedTuple):
    """What became of each run of one task; all bool ``[N]``. A declaration far from the event is both wrong and a
    miss."""

    happened: np.ndarray  # the event is in the run
    declared: np.ndarray  # it was said to be
    hit: np.ndarray  # and was, within `TOLERANCE` steps

    @property
    def precision(self) -> float:
        """Share of the declarations that are right; nan without any."""
        return share(self.hit, self.declared)

    @property
    def recall(self) -> float:
        """Share of the events that were declared; nan without any."""
        return share(self.hit, self.happened)

    @property
    def f1(self) -> float:
        """Harmonic mean of both, 0 without a hit."""
        return 2 * self.hit.sum() / max(1, self.declared.sum() + self.happened.sum())


def share(part: np.ndarray, whole: np.ndarray) -> float:
    """``part`` of ``whole``, bool ``[N]`` both; nan when the whole is empty."""
    return float((part & whole).sum() / whole.sum()) if whole.any() else float("nan")


def outcomes(chances: np.ndarray, events: np.ndarray, counted: np.ndarray, threshold: float) -> Outcomes:
    """The outcomes of runs ``[N, T]`` of one task: the first step with a chance of ``threshold`` or more against the
    first event, among the steps that count and those just after the event. Runs without any such step are left out.
    """
    some = counted.any(1)
    chances, events, counted = chances[some], events[some] & counted[some], counted[some]
    happened, when = events.any(1), events.argmax(1)
    late = np.arange(events.shape[1])[None] - when[:, None]
    seen = counted | (happened[:, None] & (late > 0) & (late <= TOLERANCE))
    said = (chances >= threshold) & seen
    declared = said.any(1)
    return Outcomes(happened, declared, happened & declared & (np.abs(said.argmax(1) - when) <= TOLERANCE))


def auroc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Area under the receiver operating characteristic of scores ``[n]`` for labels bool ``[n]``: how often a positive
    one has the higher score, ties counted half; nan when one kind is missing."""
    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative:
        return float("nan")
    values, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def calibration_error(chances: np.ndarray, labels: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: the mean distance, over steps ``[n]``, between the mean chance of a bin and the share
    of events in it; bins hold equally many steps, since most chances are near 0 (Nixon et al. 2019)."""
    order = np.argsort(chances, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(chances[part].mean() - labels[part].mean()) for part in parts) / len(chances))
