"""Rank statistics against values that were worked out by hand, and what has to hold for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.ranking import (
    BIAS,
    ERROR,
    KENDALL,
    MEASURES,
    PAIRS,
    PEARSON,
    REGRET,
    SPEARMAN,
    VIOLATION,
    absolute_error,
    agreement,
    clear_pairs,
    kendall,
    midranks,
    pair_accuracy,
    pearson,
    rank_violation,
    regret,
    signed_bias,
    spearman,
)

TRUE, JUDGED = np.array([0.1, 0.2, 0.6, 0.9]), np.array([0.2, 0.4, 0.3, 0.8])
VALUES = st.integers(2, 9).flatmap(lambda n: arrays(np.int64, (2, n), elements=st.integers(0, 5)))


def test_hand_computed_values():
    assert midranks([5, 1, 5, 2]).tolist() == [3.5, 1, 3.5, 2]
    assert spearman(TRUE, JUDGED) == pytest.approx(1 - 6 * 2 / (4 * 15))  # ranks differ by 1 twice
    assert kendall(TRUE, JUDGED) == pytest.approx((5 - 1) / 6)  # one pair of six is swapped
    assert pearson([1, 2, 3], [1, 2, 2]) == pytest.approx(1 / np.sqrt(2 * 2 / 3))
    assert rank_violation(TRUE, JUDGED) == pytest.approx((0 + 0.4 + 0.4 + 0) / 4 / 0.8)
    assert signed_bias(TRUE, JUDGED) == pytest.approx((0.1 + 0.2 - 0.3 - 0.1) / 4)
    assert absolute_error(TRUE, JUDGED) == pytest.approx(0.7 / 4)
    assert regret(TRUE, JUDGED) == 0 and regret(TRUE, [1, 2, 3, 2]) == pytest.approx(0.3)


def test_ties_share_ranks_and_count_half():
    assert spearman([1, 2, 3, 4], [1, 2, 2, 3]) == pytest.approx(0.9486833)
    assert kendall([1, 2, 3, 4], [1, 2, 2, 3]) == pytest.approx(5 / np.sqrt(6 * 5))
    assert regret([0, 1, 3], [1, 2, 2]) == pytest.approx(1)  # either favourite: 3 - (1 + 3) / 2
    every = ~np.eye(3, dtype=bool)
    assert pair_accuracy(np.array([1, 2, 3]), np.array([1, 2, 2]), every) == pytest.approx((1 + 1 + 0.5) / 3)
    # Of a tie only the worse policy sees the better one on the wrong side.
    assert rank_violation([0, 1], [5, 5]) == pytest.approx(0.5)


def test_a_place_that_tells_nobody_apart_agrees_with_nothing():
    for measure in (pearson, spearman, kendall):
        assert measure(TRUE, np.full(4, 0.3)) == measure(np.full(4, 0.3), TRUE) == measure([1.0], [2.0]) == 0
    assert rank_violation(np.full(4, 0.3), JUDGED) == 0
    nothing = np.zeros((4, 4), dtype=bool)
    assert pair_accuracy(TRUE, JUDGED, nothing) == 0.5 == pair_accuracy(TRUE, np.zeros(4), ~np.eye(4, dtype=bool))


@given(VALUES, st.permutations(range(9)))
def test_the_order_of_policies_does_not_matter(values, order):
    order = [k for k in order if k < values.shape[1]]
    for measure in MEASURES.values():
        assert measure(*values) == pytest.approx(measure(*values[:, order]))


@given(VALUES)
def test_ranges_and_reversals(values):
    true, judged = values
    for measure in (pearson, spearman, kendall):
        assert -1 <= measure(true, judged) <= 1
        assert measure(true, judged) == pytest.approx(measure(judged, true))
        assert measure(true, -judged) == pytest.approx(-measure(true, judged))
        assert measure(true, true) == pytest.approx(float(len(set(true)) > 1))
    assert 0 <= rank_violation(true, judged) <= 1 and rank_violation(true, true) == 0
    assert 0 <= regret(true, judged) <= np.ptp(true) and regret(true, true) == 0
    assert abs(signed_bias(true, judged)) <= absolute_error(true, judged) + 1e-12


@given(VALUES)
def test_rank_statistics_ask_for_the_order_alone(values):
    true, judged = values
    for measure in (spearman, kendall, rank_violation, regret):
        assert measure(true, judged**3) == pytest.approx(measure(true, judged))
    assert pearson(true, 2.0 * judged + 3) == pytest.approx(pearson(true, judged))
    assert rank_violation(2.0 * true + 3, judged) == pytest.approx(rank_violation(true, judged))


@given(VALUES, VALUES)
def test_many_rankings_at_once_are_those_one_by_one(first, second):
    n = min(first.shape[1], second.shape[1])
    both = np.stack([first[:, :n], second[:, :n]], axis=1)
    for measure in MEASURES.values():
        assert measure(*both) == pytest.approx(np.array([measure(*both[:, k]) for k in (0, 1)]))


def test_shapes_that_do_not_fit_are_refused():
    for measure in MEASURES.values():
        with pytest.raises(ValueError, match="one of each policy for both places"):
            measure(TRUE, JUDGED[:3])
    with pytest.raises(ValueError, match="at least 2, and of episodes"):
        agreement(np.zeros((1, 5)), np.zeros((1, 5)))
    with pytest.raises(ValueError, match="at least 2, and of episodes"):
        agreement(np.zeros((3, 5)), np.zeros((3, 4)))


# Over policies and episodes.


def played(values, episodes, seed=0):
    """Successes of policies with these chances, ``[P, N]``."""
    return (np.random.default_rng(seed).random((len(values), episodes)) < np.array(values)[:, None]).astype(float)


CHANCES = np.linspace(0, 1, 12)


def test_a_faithful_place_agrees_and_a_reversed_one_disagrees():
    true, faithful = played(CHANCES, 64), played(CHANCES, 64, seed=1)
    found = agreement(true, faithful)
    assert found[SPEARMAN].mean > 0.95 and min(found[name].low for name in (SPEARMAN, KENDALL, PEARSON)) > 0.6
    assert found[VIOLATION].mean < 0.1 and found[PAIRS].mean > 0.9 and found[REGRET].mean < 0.1
    assert abs(found[BIAS].mean) < 0.05 and found[ERROR].mean < 0.1 and found[SPEARMAN].count == 12
    worse = agreement(true, played(1 - CHANCES, 64, seed=1))
    assert worse[SPEARMAN].high < -0.6 and worse[PAIRS].mean < 0.1 and worse[REGRET].mean == 1


def test_a_place_of_chance_scores_near_zero_and_its_interval_says_so():
    found = agreement(played(CHANCES, 64), played(np.full(12, 0.5), 64, seed=1))
    assert found[SPEARMAN].low < 0 < found[SPEARMAN].high


def test_the_same_place_agrees_with_itself_in_every_resample():
    true = played(CHANCES, 16)
    found = agreement(true, true)
    for name in (SPEARMAN, KENDALL, PEARSON):
        assert found[name].low == pytest.approx(1) and found[name].high == pytest.approx(1)
    for name in (VIOLATION, BIAS, ERROR, REGRET):
        assert found[name].low == found[name].high == 0
    assert found[PAIRS].low == 1


def test_fewer_episodes_make_wider_intervals():
    def width(episodes):
        rho = agreement(played(CHANCES, episodes), played(CHANCES, episodes, seed=1))[SPEARMAN]
        return rho.high - rho.low

    assert 2 * width(200) < width(10)


def test_pairs_are_clear_when_their_intervals_do_not_overlap():
    clear = clear_pairs(played([0.05, 0.5, 0.95], 64))
    assert clear.tolist() == (~np.eye(3, dtype=bool)).tolist()
    assert not clear_pairs(played([0.5, 0.5], 64)).any() and not clear_pairs(np.zeros((3, 8))).any()


def test_intervals_depend_on_the_seed_alone():
    true, judged = played(CHANCES, 16), played(CHANCES, 16, seed=1)
    assert agreement(true, judged, seed=3) == agreement(true, judged, seed=3) != agreement(true, judged, seed=4)
