"""The Frechet distance, against Gaussians whose distance is known."""

import numpy as np
import pytest

from benchmarks.frechet import frechet_distance, frechet_interval


def features(seed: int, count: int, mean: float = 0.0, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, scale, (count, 4))


def test_it_is_that_of_the_gaussians():
    """Independent features of the same kind: ``D ((m1 - m2)^2 + (s1 - s2)^2)``."""
    distance = frechet_distance(features(0, 200_000, 1.0, 2.0), features(1, 200_000, -0.5, 0.5))
    assert distance == pytest.approx(4 * (1.5**2 + 1.5**2), rel=0.02)


def test_it_knows_correlations_that_means_and_variances_do_not_show():
    independent = features(0, 50_000)
    shared = independent[:, :1].repeat(4, axis=1)
    assert frechet_distance(independent, shared) == pytest.approx(4 + 4 - 2 * 2, rel=0.05)  # root of S2 is S2 / 2


def test_a_set_is_at_no_distance_from_itself_and_the_order_does_not_matter():
    one, two = features(0, 30), features(1, 50, 0.3)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(one, two) == pytest.approx(frechet_distance(two, one))


def test_the_interval_is_centred_and_grows_with_what_levels_differ():
    true = [features(level, 40) for level in range(8)]
    alike = frechet_interval([features(100 + level, 40) for level in range(8)], true, 0)
    apart = frechet_interval([features(100 + level, 40, level / 4) for level in range(8)], true, 0)
    assert alike.low <= alike.mean <= alike.high < apart.mean and alike.count == 8
    assert apart.high - apart.low > 2 * (alike.high - alike.low)
    assert apart == frechet_interval([features(100 + level, 40, level / 4) for level in range(8)], true, 0)


def test_a_single_feature_has_no_spread_and_is_refused():
    with pytest.raises(ValueError, match="at least two"):
        frechet_distance(features(0, 1), features(0, 5))
