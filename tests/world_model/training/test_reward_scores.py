"""Scores of declared events, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from world_model.training.reward_scores import auroc, calibration_error, outcomes


def run(chances, event=None, last=None):
    """One run of one task: chances per step, the step of the event and the last step that counts."""
    steps = np.arange(len(chances))
    end = event if last is None else last
    return np.array(chances, float), steps == event, (steps > 0) & (steps <= (len(chances) if end is None else end))


def judge(*runs, threshold=0.5):
    return outcomes(*(np.stack(column) for column in zip(*runs, strict=True)), threshold=threshold)


def test_a_declaration_counts_within_two_steps():
    for step, hit in ((3, False), (4, True), (6, True), (8, True), (9, False)):
        found = judge(run(np.eye(1, 12, step)[0], event=6))
        assert found.happened.all() and bool(found.hit.all()) is hit
        assert found.declared.all() == (step < 9)  # later steps are not looked at


def test_precision_and_recall_of_several_runs():
    found = judge(
        run([0, 0, 0.9, 0], event=2), run([0, 0.9, 0, 0]), run([0, 0, 0, 0], event=3), run([0.9, 0, 0, 0])
    )  # a hit, a false alarm, a miss, and a start, which is not judged
    assert found.precision == 0.5 and found.recall == 0.5 and found.f1 == 0.5
    assert np.isnan(judge(run([0, 0])).precision)


def test_runs_in_which_nothing_counts_are_left_out():
    assert len(judge(run([0, 0.9, 0], last=0), run([0, 0, 0])).happened) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auroc_is_the_share_of_pairs_in_order(pairs):
    scores, labels = (np.array(column) for column in zip(*pairs, strict=True))
    compared = [(p > n) + (p == n) / 2 for p in scores[labels] for n in scores[~labels]]
    if compared:
        assert auroc(scores, labels) == pytest.approx(np.mean(compared))
    else:
        assert np.isnan(auroc(scores, labels))


def test_calibration_error_is_zero_for_frequencies_and_the_bias_otherwise():
    labels = np.arange(1000) % 4 == 0
    assert calibration_error(np.full(1000, 0.25), labels, bins=1) == pytest.approx(0)
    assert calibration_error(np.full(1000, 0.75), labels, bins=1) == pytest.approx(0.5)
    assert calibration_error(labels.astype(float), labels) == pytest.approx(0)
