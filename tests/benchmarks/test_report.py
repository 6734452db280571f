"""The measures and intervals that every benchmark rests on."""

import json
from argparse import Namespace

import numpy as np
import pytest
import torch

from benchmarks import report


def pictures(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8))


def test_psnr_of_a_known_error():
    black = torch.zeros(2, 16, 16, 3, dtype=torch.uint8)
    values = report.psnr(black, black + torch.tensor([0, 51], dtype=torch.uint8)[:, None, None, None])
    assert values[0] == report.HIGHEST_PSNR
    assert values[1] == pytest.approx(20 * np.log10(255 / 51), abs=1e-4)


def ssim_by_hand(one: np.ndarray, two: np.ndarray) -> float:
    """The definition, window by window, for one channel."""
    offsets = np.arange(11) - 5
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    values = []
    for y in range(one.shape[0] - 10):
        for x in range(one.shape[1] - 10):
            a, b = one[y : y + 11, x : x + 11], two[y : y + 11, x : x + 11]
            ma, mb = (window * a).sum(), (window * b).sum()
            va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
            both = (window * (a - ma) * (b - mb)).sum()
            values.append((2 * ma * mb + c1) * (2 * both + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return float(np.mean(values))


def test_ssim_follows_its_definition():
    one, two = pictures(0, 14, 15), pictures(1, 14, 15)
    two = (0.6 * one.float() + 0.4 * two.float()).to(torch.uint8)
    expected = [ssim_by_hand(*(p[..., c].double().numpy() for p in (one, two))) for c in range(3)]
    assert report.ssim(one, two).item() == pytest.approx(np.mean(expected), abs=1e-4)


def test_ssim_keeps_the_leading_axes_and_is_one_for_equal_pictures():
    batch = pictures(2, 2, 3, 16, 16)
    values = report.ssim(batch, batch)
    assert values.shape == (2, 3)
    torch.testing.assert_close(values, torch.ones(2, 3))


def test_the_interval_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [report.bootstrap(rng.normal(3, 1, 40), seed=k) for k in range(120)]
    share = np.mean([interval.low <= 3 <= interval.high for interval in covered])
    assert 0.88 <= share <= 1.0


def test_values_of_one_group_do_not_count_as_independent():
    rng = np.random.default_rng(1)
    levels = rng.normal(0, 1, 10)
    values, groups = np.repeat(levels, 8), np.repeat(np.arange(10), 8)
    alone, together = report.bootstrap(values), report.bootstrap(values, groups=groups)
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert together.mean == alone.mean and together.count == 80


def test_the_interval_depends_on_the_seed_alone():
    values = np.arange(9.0)
    assert report.bootstrap(values, seed=4) == report.bootstrap(values, seed=4)


def test_a_bootstrap_of_nothing_is_refused():
    with pytest.raises(ValueError, match="0 values"):
        report.bootstrap([])
    with pytest.raises(ValueError, match="2 values and 1 groups"):
        report.bootstrap([1.0, 2.0], groups=["a"])


def test_a_table_lines_up():
    lines = report.markdown_table(["a", "long name"], [["1", "2"], ["wide cell", "3"]]).splitlines()
    assert len({len(line) for line in lines}) == 1 and lines[1].strip("|-") == ""


def test_results_and_a_plot_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/benchmarks/fidelity.py", "--quick"])
    interval = report.Interval(1.0, 0.5, 1.5, 4)
    settings = Namespace(quick=True, json=tmp_path / "a" / "out.json", plot=None)
    report.write_json(settings.json, settings, {"generated": {"1": interval}})
    written = json.loads(settings.json.read_text())
    assert written["command"] == "python -m benchmarks.fidelity --quick"
    assert written["results"]["generated"]["1"] == {"mean": 1.0, "low": 0.5, "high": 1.5, "count": 4}
    assert written["machine"]["versions"]["torch"].startswith("2.") and written["settings"] == {"quick": True}
    curve = report.Curve("generated", [1, 2], [interval, interval])
    report.plot(tmp_path / "b" / "plot.png", {"PSNR (dB)": [curve], "SSIM": [curve]}, "frames")
    assert (tmp_path / "b" / "plot.png").stat().st_size > 1000


def test_crossed_intervals_cover_seeds_and_levels():
    rng = np.random.default_rng(0)
    levels = rng.normal(0, 1, 60)
    alike, apart = levels + np.zeros((3, 1)), levels + np.array([[-2.0], [0.0], [2.0]])
    alone, one, other = (report.crossed_bootstrap(values) for values in (alike[:1], alike, apart))
    assert (alone.low, alone.high) == pytest.approx((one.low, one.high), abs=0.05)
    assert alone.high - alone.low == pytest.approx(2 * 1.96 * levels.std() / 60**0.5, rel=0.1)
    assert other.mean == pytest.approx(levels.mean()) and other.high - other.low > 2 * (one.high - one.low)
    assert other.count == 180
    with pytest.raises(ValueError, match="no values in an array of the shape"):
        report.crossed_bootstrap(np.zeros((0, 4)))
