"""Statistics of columns: those of all rows together, however they came in."""

from __future__ import annotations

import numpy as np
import pytest

from agents.record.table_stats import QUANTILES, Moments

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(), (6,)])
def test_numbers_are_summed_up_over_episodes(shape):
    rows = RANDOM.normal(size=(20, *shape))
    moments = Moments()
    moments.add({"x": rows[:7]})
    moments.add({"x": rows[7:]})
    told, flat = moments.told()["x"], rows.reshape(20, -1)
    expected = {"min": flat.min(0), "max": flat.max(0), "mean": flat.mean(0), "std": flat.std(0), "count": [20]}
    expected |= {name: np.quantile(flat, share, axis=0) for name, share in QUANTILES.items()}
    assert told.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(told[name], value, atol=1e-12)


def test_pictures_are_told_by_colour_and_in_the_unit_interval():
    pictures = RANDOM.integers(5, 250, (8, 16, 16, 3), dtype=np.uint8)
    moments = Moments()
    moments.add({"image": pictures[:3]})
    moments.add({"image": pictures[3:]})
    told, levels = moments.told()["image"], pictures.reshape(-1, 3) / 255
    expected = {"min": levels.min(0), "max": levels.max(0), "mean": levels.mean(0), "std": levels.std(0)}
    for name, value in expected.items():
        assert np.shape(told[name]) == (3, 1, 1)
        np.testing.assert_allclose(np.ravel(told[name]), value, atol=1e-9)
    for name, share in QUANTILES.items():
        np.testing.assert_allclose(np.ravel(told[name]), np.quantile(levels, share, axis=0), atol=1 / 255)
    assert told["count"] == [8]
