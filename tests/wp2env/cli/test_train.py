"""`wp2 train doom --curriculum`: what the user sees when it is stopped."""

from __future__ import annotations

import pytest

from world_model.training import cli
from wp2env.cli.main import INTERRUPTED


@pytest.mark.parametrize("where", ["interrupted in navigation at step 7", ""])
def test_a_stopped_curriculum_says_in_one_line_how_to_go_on(wp2, monkeypatch, where):
    def stopped(first, limits):
        raise KeyboardInterrupt(where)

    monkeypatch.setattr(cli, "run_curriculum", stopped)
    answer = wp2("train", "doom", "--curriculum", "--data", "d", "--out", "o")
    assert answer.code == INTERRUPTED and not answer.out
    assert answer.err == f"wp2 train doom: {where or 'interrupted'}; the same command goes on from here\n"


def test_stage_names_of_the_options_are_checked_before_anything_is_read(wp2):
    answer = wp2("train", "doom", "--curriculum", "--data", "nowhere", "--out", "o", "--steps", "codecs=5")
    assert answer.error.startswith("wp2 train doom: error: --steps codecs=5 names no stage of the curriculum")
