"""What the columns cannot be measured of is said before anything is measured."""

from __future__ import annotations

import pytest

from benchmarks import speed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slots", "0"], "--slots is 0; give at least 1"),
        (["--device", "cuda"], "--device cuda is for --cumulative"),
        (["--world", "worlds/fast"], "worlds/fast is a large world; the columns are of small ones, give --cumulative"),
    ],
)
def test_wrong_options_are_answered_in_one_sentence(monkeypatch, words, message):
    monkeypatch.setattr(speed, "load_world", lambda *given, **named: object())
    with pytest.raises(ValueError, match=message):
        speed.main(speed.parse(["--quick", *words]))
