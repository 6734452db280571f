"""``wp2 plan`` prints what the plan holds."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("purpose", "named"), [(["--inference"], "key-value cache"), (["--train", "navigation"], "Adam")]
)
def test_a_plan_names_every_use_and_their_sum(wp2, purpose, named):
    answer = wp2("plan", "--preset", "wan2.1-1.3b", "--gpus", "2", "--frames", "29", *purpose)
    assert answer.code == 0 and not answer.err
    head, *lines = answer.out.strip().split("\n\n")[1].split("\n")[::-1]
    assert any(named in line for line in lines)
    assert "8 latents" in answer.out and "on each of 2 GPUs" in answer.out
    parts = [float(line[32:41].replace(",", "")) for line in lines]
    assert float(head.split()[-1].replace(",", "")) == pytest.approx(sum(parts), abs=0.01 * len(parts))


def test_frames_that_do_not_fit_are_answered_in_one_sentence(wp2):
    assert "give 77 or 93" in wp2("plan", "--preset", "worldplay2-14b", "--frames", "81").error
