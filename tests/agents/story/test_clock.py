"""Time adds up over tries, also those that failed."""

from __future__ import annotations

import json

import pytest

from agents.story import clock as module
from agents.story.clock import Clock


@pytest.fixture
def tick(monkeypatch):
    """Every look at the time is a second after the one before."""
    times = iter(range(100))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(times)))


def test_chapters_add_up_over_tries_and_processes(tick, tmp_path):
    file = tmp_path / "seconds.json"
    first = Clock(file)
    with first.measure("starts"):
        pass
    with pytest.raises(KeyboardInterrupt), first.measure("training"):
        raise KeyboardInterrupt
    second = Clock(file)
    with second.measure("training"):
        pass
    assert second.seconds == json.loads(file.read_text()) == {"starts": 1.0, "training": 2.0}
    assert second.total == 3.0
