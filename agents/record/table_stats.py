"""Statistics of a dataset's columns, as LeRobot keeps them to normalise by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
LEVELS = np.arange(256) / 255


class Moments:
    """Minimum, maximum, mean, deviation and quantiles of columns that grow episode by episode.

    Pictures uint8 ``[T, H, W, 3]`` are counted by colour and level, in [0, 1]; other columns ``[T]`` or ``[T, n]`` are
    kept.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, list[np.ndarray]] = {}
        self._pictures: dict[str, np.ndarray] = {}  # int64 [3, 256]
        self._frames: dict[str, int] = {}

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Add the rows of an episode."""
        for name, column in columns.items():
            self._frames[name] = self._frames.get(name, 0) + len(column)
            if column.ndim == 4:
                counts = np.stack([np.bincount(column[..., c].ravel(), minlength=256) for c in range(3)])
                self._pictures[name] = self._pictures.get(name, 0) + counts
            else:
                self._numbers.setdefault(name, []).append(column.reshape(len(column), -1).astype(np.float64))

    def told(self) -> dict[str, dict[str, list]]:
        """``{column: {"min", "max", "mean", "std", "count", "q01", ...}}``; of pictures each ``[3, 1, 1]``."""
        told = {}
        for name, parts in self._numbers.items():
            told[name] = _listed(_of_numbers(np.concatenate(parts)), self._frames[name])
        for name, counts in self._pictures.items():
            stats = {what: value[:, None, None] for what, value in _of_levels(counts).items()}
            told[name] = _listed(stats, self._frames[name])
        return told


def _of_numbers(rows: np.ndarray) -> dict[str, np.ndarray]:
    stats = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    return stats | {name: np.quantile(rows, share, axis=0) for name, share in QUANTILES.items()}


def _of_levels(counts: np.ndarray) -> dict[str, np.ndarray]:
    shares = counts / counts.sum(1, keepdims=True)
    mean = shares @ LEVELS
    seen = counts > 0
    return {
        "min": LEVELS[seen.argmax(1)],
        "max": LEVELS[255 - seen[:, ::-1].argmax(1)],
        "mean": mean,
        "std": np.sqrt(np.maximum(shares @ LEVELS**2 - mean**2, 0)),
        **{name: LEVELS[(shares.cumsum(1) >= share - 1e-12).argmax(1)] for name, share in QUANTILES.items()},
    }


def _listed(stats: Mapping[str, np.ndarray], count: int) -> dict[str, list]:
    return {name: value.tolist() for name, value in stats.items()} | {"count": [count]}
