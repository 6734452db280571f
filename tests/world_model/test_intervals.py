"""Intervals hold what resamples say, and resamples draw as many as there are, whole groups at a time."""

from __future__ import annotations

import numpy as np
import pytest

from world_model.intervals import RESAMPLES, bootstrap, drawn_again, ends, members, percentile_interval


def test_an_interval_holds_95_percent_of_the_estimates_around_the_estimate_of_all():
    found = percentile_interval(3.0, np.arange(1001), 7)
    assert (found.mean, found.low, found.high, found.count) == (3, pytest.approx(25), pytest.approx(975), 7)
    both = ends(np.stack([np.arange(1001), -np.arange(1001)], axis=1))
    assert both == pytest.approx(np.array([[25, -975], [975, -25]]))


def test_without_resamples_there_are_no_ends():
    found = percentile_interval(3.0, [], 7)
    assert found.mean == 3 and np.isnan(found.low) and np.isnan(found.high)


def test_every_resample_draws_as_many_as_there_are():
    counts = drawn_again(5, np.random.default_rng(0))
    assert counts.shape == (RESAMPLES, 5) and (counts.sum(1) == 5).all()
    assert counts.mean(0) == pytest.approx(np.ones(5), abs=0.1)


def test_members_of_groups_are_kept_together():
    assert [list(places) for places in members(["b", "a", "b"])] == [[1], [0, 2]]
    found = bootstrap([0.0, 0.0, 1.0, 1.0], groups=["one"] * 4)
    assert found.low == found.mean == found.high == 0.5  # the only group is drawn whole each time


def test_as_many_groups_as_values_are_needed():
    with pytest.raises(ValueError, match="there are 2 values and 1 groups; give at least one, and as many of each"):
        bootstrap([1.0, 2.0], groups=["one"])
