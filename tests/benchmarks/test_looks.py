"""The measures of how pictures look, on pictures whose values can be told by hand."""

import pytest
import torch

from benchmarks import looks as module
from benchmarks.looks import looks


def video(*pictures: torch.Tensor) -> torch.Tensor:
    return torch.stack(pictures).to(torch.uint8)[None]


BLACK = torch.zeros(8, 8, 3)
HALF = torch.cat([torch.zeros(8, 4, 3), torch.full((8, 4, 3), 100.0)], dim=1)
RED = torch.tensor([200.0, 50.0, 50.0]).expand(8, 8, 3)


def test_values_by_hand():
    measured = looks(video(BLACK, HALF, RED), BLACK.to(torch.uint8)[None])
    red = 0.299 * 200 + 0.701 * 50
    assert measured["brightness"][0].tolist() == pytest.approx([0, 50, red], abs=1e-3)
    assert measured["contrast"][0].tolist() == pytest.approx([0, 50, 0], abs=1e-3)
    assert measured["saturation"][0].tolist() == pytest.approx([0, 0, 0.75])
    assert measured["sharpness"][0].tolist() == pytest.approx([0, 100 / 7**0.5, 0], abs=1e-3)
    assert measured["motion"][0].tolist() == pytest.approx(
        [0, 50, (150 + 50 + 50) / 3]
    )  # HALF to RED: mean of both halves


def test_motion_counts_from_the_frame_before_and_pieces_join(monkeypatch):
    pictures = torch.randint(0, 256, (2, 7, 8, 8, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    whole = looks(pictures[:, 1:], pictures[:, 0])
    assert whole["motion"].shape == (2, 6) and whole["motion"].min() > 0
    monkeypatch.setattr(module, "FRAMES_AT_ONCE", 4)
    for name, values in looks(pictures[:, 1:], pictures[:, 0]).items():
        torch.testing.assert_close(values, whole[name])
