"""What is said of a story: settings, shares with their intervals, and differences that are paired."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.places import GAME, WORLD
from agents.story.findings import AFTER, STAGES, Story, percent, table
from world_model.intervals import Interval


@given(steps=st.integers(1, 10**7))
def test_stages_begin_before_training_rise_and_end_with_all_steps(steps):
    stages = Story(steps=steps).stages
    assert stages[0] == 0 and stages[-1] == steps and stages == sorted(set(stages)) and len(stages) <= STAGES + 1


@pytest.mark.parametrize("change", [{"steps": 0}, {"episodes": 0}])
def test_a_story_of_nothing_is_refused(change):
    with pytest.raises(ValueError, match="give at least 1 of each"):
        Story(**change)


def test_short_stories_try_the_agent_out_in_fewer_episodes():
    assert Story(episodes=5).tries == 5 and Story(episodes=500).tries == 32


def test_shares_and_gains_are_those_of_the_episodes(make_findings):
    found = make_findings(before=1, after=8)
    assert found.share(AFTER, GAME).mean == pytest.approx(0.8)
    assert found.gap(AFTER)["success"].mean == pytest.approx(0.1) and found.gap(AFTER)["agreement"].mean == 0.9
    assert found.gain(WORLD).mean == found.gain(GAME).mean == pytest.approx(0.7)


def test_everything_is_written_down_as_json(make_findings):
    told = json.loads(json.dumps(make_findings().as_dict()))
    assert told["settings"]["steps"] == 1000 and told["steps"] == 1024
    assert told["policies"][AFTER]["game"]["means"]["success"]["mean"] == pytest.approx(0.8)
    assert len(told["policies"][AFTER]["world"]["episodes"]["success"]) == 10
    assert told["after - before"]["game"]["mean"] == pytest.approx(0.7)
    assert [point["steps"] for point in told["curve"]] == [0, 512, 1024]


def test_percentages_round_and_carry_their_sign_where_they_are_differences():
    assert percent(Interval(0.314, 0.2, 0.43, 9)) == "31 % [20, 43]"
    assert percent(Interval(0.314, -0.2, 0.43, 9), signed=True) == "+31 % [-20, +43]"
    assert percent(Interval(-0.0, -0.0, 0.0, 9)) == "0 % [0, 0]"


def test_the_table_has_a_line_for_every_policy(make_findings):
    lines = table(make_findings()).splitlines()
    assert len(lines) == 2 + 4 and "| in the world" in lines[0]
    assert any("after training" in line and "80 %" in line and "90 %" in line for line in lines)


@pytest.mark.parametrize("minutes", [0, -1.0, float("nan"), float("inf")])
def test_minutes_that_are_no_time_are_refused(minutes):
    with pytest.raises(ValueError, match=f"there are {minutes} minutes; give more than 0, or None"):
        Story(minutes=minutes)
