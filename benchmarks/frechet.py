"""The Frechet distance between two sets of features: how far apart their Gaussians lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.report import Interval

RESAMPLES = 200  # a distance costs two eigenvalue problems, and only the spread is wanted
QUANTILE = 1.96  # of the normal distribution, for 95 %


def frechet_distance(one: np.ndarray, two: np.ndarray) -> float:
    """``|m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))`` of features ``[N, D]`` and ``[M, D]``, 0 or more.

    Heusel et al., "GANs Trained by a Two Time-Scale Update Rule", 2017, Eq. 6 (there with Inception features). It is
    biased upwards where N or M is not much larger than D, so compare only distances of sets of like sizes.

    Raises:
        ValueError: for a set of fewer than two features, or sets of different widths.
    """
    if min(len(one), len(two)) < 2 or one.shape[1] != two.shape[1]:
        raise ValueError(
            f"features of the shapes {one.shape} and {two.shape} have no Frechet distance; "
            "give at least two of each, of the same width"
        )
    covariances = [
        np.cov(features.astype(np.float64), rowvar=False).reshape(2 * [one.shape[1]]) for features in (one, two)
    ]
    values, vectors = np.linalg.eigh(covariances[0])
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    between = np.sqrt(np.linalg.eigvalsh(root @ covariances[1] @ root).clip(0)).sum()
    means = np.square(one.mean(0, dtype=np.float64) - two.mean(0, dtype=np.float64)).sum()
    return float(max(0.0, means + np.trace(covariances[0]) + np.trace(covariances[1]) - 2 * between))


def frechet_interval(one: Sequence[np.ndarray], two: Sequence[np.ndarray], seed: int) -> Interval:
    """The distance between all of ``one`` and all of ``two``, features ``[n, D]`` per level, and its 95 % interval.

    Whole levels are drawn again, the same in both. A resample holds fewer distinct levels and so lies further apart
    than the sample itself; the interval is therefore the distance plus and minus 1.96 standard deviations of the
    resamples, not their quantiles.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(one), size=(RESAMPLES, len(one)))
    resampled = [
        frechet_distance(np.concatenate([one[k] for k in row]), np.concatenate([two[k] for k in row])) for row in drawn
    ]
    distance, spread = frechet_distance(np.concatenate(one), np.concatenate(two)), QUANTILE * float(np.std(resampled))
    return Interval(distance, max(0.0, distance - spread), distance + spread, len(one))
