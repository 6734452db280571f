"""How well one place tells policies apart as another one does: rank statistics, and their intervals.

All functions take the policies' values in the true place and in the judged one, float ``[..., P]`` each, and give
``[...]``. Where a correlation has no value, because all policies are equal in one of the places, it is taken to be 0:
a place that tells nobody apart agrees with nothing.
"""

from __future__ import annotations

import numpy as np

from world_model.intervals import RESAMPLES, Interval, drawn_again, ends, percentile_interval

CHANCE = 0.5  # of pairs in the right order, for a place that tells nobody apart
DIGITS = 10  # to which means of episodes are the same: their sums differ by how they were added up
SPEARMAN, KENDALL, PEARSON = "Spearman rho", "Kendall tau-b", "Pearson r"
VIOLATION, BIAS, ERROR, REGRET = "MMRV / true range", "signed bias", "absolute error", "regret of the favourite"
PAIRS = "accuracy of clear pairs"


def pearson(true: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """The correlation coefficient, in [-1, 1]."""
    first, second = (values - values.mean(-1, keepdims=True) for values in _checked(true, judged))
    scale = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    apart = ~(_constant(true) | _constant(judged)) & (scale > 0)
    return np.where(apart, (first * second).sum(-1) / np.where(apart, scale, 1), 0.0).clip(-1, 1)


def spearman(true: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """Pearson's coefficient of the ranks, in [-1, 1]; equal values share the mean of their ranks."""
    return pearson(*map(midranks, _checked(true, judged)))


def kendall(true: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """Kendall's tau-b, in [-1, 1]: pairs in the same order less those in the opposite one, over the geometric mean of
    the numbers of pairs that each place tells apart."""
    first, second = (np.sign(_differences(values)) for values in _checked(true, judged))
    told = np.sqrt((first**2).sum((-2, -1)) * (second**2).sum((-2, -1)))
    return np.where(told > 0, (first * second).sum((-2, -1)) / np.where(told > 0, told, 1), 0.0)


def rank_violation(true: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """Mean maximum rank violation over the range of the true values, in [0, 1]; 0 where that has no extent.

    Of each policy, the greatest true difference to another one with which it is in the wrong order (Li et al.,
    "Evaluating Real-World Robot Manipulation Policies in Simulation", 2024, Eq. 1 and 2); the range makes values of
    different units comparable.
    """
    true, judged = _checked(true, judged)
    gaps = _differences(true)
    wrong = (_differences(judged) < 0) != (gaps < 0)
    extent = np.ptp(true, axis=-1)
    violations = (np.abs(gaps) * wrong).max(-1).mean(-1)
    return np.where(extent > 0, violations / np.where(extent > 0, extent, 1), 0.0)


def signed_bias(true: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """The mean of judged less true."""
    true, judged = _checked(true, judged)
    return (judged - true).mean(-1)


def absolute_error(true: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """The mean of how far judged values are from the true ones."""
    true, judged = _checked(true, judged)
    return np.abs(judged - true).mean(-1)


def regret(true: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """What is lost by taking the policy that does best in the judged place: the best true value less that policy's;
    the mean over the favourites where there are several."""
    true, judged = _checked(true, judged)
    favourite = judged == judged.max(-1, keepdims=True)
    return true.max(-1) - (true * favourite).sum(-1) / favourite.sum(-1)


def pair_accuracy(true: np.ndarray, judged: np.ndarray, clear: np.ndarray) -> np.ndarray:
    """The share of the clear pairs (bool ``[..., P, P]``) that are in the right order; a judged tie counts half, and
    without any clear pair it is chance."""
    first, second = (np.sign(_differences(values)) for values in _checked(true, judged))
    right = np.where(second == 0, CHANCE, first == second)
    count = clear.sum((-2, -1))
    return np.where(count > 0, (right * clear).sum((-2, -1)) / np.maximum(count, 1), CHANCE)


MEASURES = {
    SPEARMAN: spearman,
    KENDALL: kendall,
    PEARSON: pearson,
    VIOLATION: rank_violation,
    BIAS: signed_bias,
    ERROR: absolute_error,
    REGRET: regret,
}


def agreement(true: np.ndarray, judged: np.ndarray, seed: int = 0) -> dict[str, Interval]:
    """All measures, with 95 % bootstrap intervals over policies and episodes: both are drawn again, the same episodes
    for all policies and in both places, because episode e begins at the same start everywhere.

    Args:
        true: an outcome of each policy in each episode, float ``[P, N]``, in the true place.
        judged: the same in the judged one.

    Raises:
        ValueError: for fewer than two policies, or another number of policies or episodes in the two places.
    """
    true, judged = np.asarray(true, np.float64), np.asarray(judged, np.float64)
    if true.ndim != 2 or true.shape != judged.shape or len(true) < 2 or not true.size:
        raise ValueError(
            f"the outcomes are {list(true.shape)} and {list(judged.shape)}; give the same number of policies, at least "
            "2, and of episodes in both places"
        )
    rng = np.random.default_rng(seed)
    policies, episodes = true.shape
    counts = drawn_again(episodes, rng)
    drawn = rng.integers(policies, size=(RESAMPLES, policies))
    again = [np.take_along_axis(_means(counts, outcomes), drawn, 1) for outcomes in (true, judged)]
    once = [_means(np.ones((1, episodes)), outcomes)[0] for outcomes in (true, judged)]
    clear = clear_pairs(true, seed)
    found = {name: (measure(*once), measure(*again)) for name, measure in MEASURES.items()}
    clear_again = clear[drawn[:, :, None], drawn[:, None, :]]
    found[PAIRS] = pair_accuracy(*once, clear), pair_accuracy(*again, clear_again)
    return {name: percentile_interval(value, estimates, policies) for name, (value, estimates) in found.items()}


def clear_pairs(true: np.ndarray, seed: int = 0) -> np.ndarray:
    """Which pairs of policies differ for certain, bool ``[P, P]``: the 95 % bootstrap intervals of their means over
    episodes, of outcomes ``[P, N]``, do not overlap."""
    counts = drawn_again(true.shape[1], np.random.default_rng(seed))
    low, high = ends(_means(counts, true))
    above = low[:, None] > high[None, :]
    return above | above.T


def midranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 on, along the last axis; equal values share the mean of theirs."""
    differences = _differences(np.asarray(values, np.float64))
    return (differences > 0).sum(-1) + ((differences == 0).sum(-1) + 1) / 2


def _differences(values: np.ndarray) -> np.ndarray:
    """``[..., i, j]``: value i less value j."""
    return values[..., :, None] - values[..., None, :]


def _constant(values: np.ndarray) -> np.ndarray:
    return (np.asarray(values) == np.asarray(values)[..., :1]).all(-1)


def _means(counts: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Means ``[R, P]`` of outcomes ``[P, N]`` over episodes that were drawn ``counts [R, N]`` times."""
    return np.round(counts @ outcomes.T / outcomes.shape[1], DIGITS)


def _checked(true: np.ndarray, judged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as floats of the same shape.

    Raises:
        ValueError: for no policies, or another number in the two places.
    """
    true, judged = np.asarray(true, np.float64), np.asarray(judged, np.float64)
    if not true.ndim or true.shape != judged.shape or not true.shape[-1]:
        raise ValueError(
            f"there are values {list(true.shape)} and {list(judged.shape)}; give one of each policy for both places"
        )
    return true, judged
