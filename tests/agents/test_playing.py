"""A match is the same for all: its first starts and seeds, and a film of the first ones; its place is closed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agents import playing
from agents.places import GAME
from agents.playing import Match


@pytest.fixture
def made(monkeypatch, corridor):
    """Places that are drawn by hand; tells of the newest one: how it was made, and whether it is closed."""
    made = SimpleNamespace(closed=False)

    def make(place, slots, **settings):
        made.place, made.settings, made.env = place, settings, corridor(slots)
        made.env.close = lambda: setattr(made, "closed", True)
        return made.env

    monkeypatch.setattr(playing, "make_env", make)
    return made


def match(episodes):
    return Match(task="t", starts=None, episodes=episodes, slots=4, steps=9, seed=3, world="w", dtype="bfloat16")


def test_the_first_starts_are_played_and_some_are_filmed(made):
    played = match(6).play("idle", GAME, filmed=2)
    assert played.evaluation.starts.tolist() == [0, 1, 2, 3, 4, 5] and played.rate == 9
    assert [len(frames) for frames in played.film.frames] == [2, 3]
    begun = [(start, seed) for start, seed in made.env.begun if seed is not None]  # the others wait
    assert sorted(begun) == [(start, 3 + start) for start in range(6)]
    assert made.place == GAME and made.closed and made.settings["dtype"] == "bfloat16"
    assert made.settings["max_episode_steps"] == 9 and made.settings["task"] == "t"


def test_there_are_no_more_slots_and_films_than_episodes(made):
    played = match(2).play("idle", GAME, filmed=5)
    assert made.env.num_envs == 2 and len(played.film.frames) == 2


def test_a_place_is_closed_when_playing_fails(made, monkeypatch):
    monkeypatch.setattr(playing, "evaluate", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        match(2).play("idle", GAME)
    assert made.closed
