"""What was played is kept whole, played once, and begins from the same starts with the same seeds everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from agents import playing
from agents.places import GAME, PLACES, WORLD
from agents.story.findings import Story
from agents.story.played import Playhouse, load_played, save_played


def test_what_was_written_is_read_again(tmp_path, make_played):
    before = make_played(4)
    save_played(before, tmp_path / "a.npz")
    after = load_played(tmp_path / "a.npz")
    assert after.evaluation.as_dict() == before.evaluation.as_dict() and after.rate == 9
    assert [len(frames) for frames in after.film.frames] == [6, 7]
    assert all(map(np.array_equal, after.film.frames[1], before.film.frames[1]))
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file", b"no archive at all"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.npz is damaged .*; delete it and give the same command again"):
        load_played(tmp_path / "a.npz")


@pytest.fixture
def house(tmp_path, monkeypatch, corridor):
    """A playhouse in places that are drawn by hand; ``house.made`` tells which were made."""
    house = Playhouse(Story(world="w", seed=7, dtype="bfloat16"), tmp_path, {"test": tmp_path / "starts"})
    house.made = []

    def make(place, slots, **settings):
        env = corridor(slots)
        house.made.append((place, env, settings))
        return env

    monkeypatch.setattr(playing, "make_env", make)
    return house


def test_a_policy_plays_the_same_episodes_in_both_places(house, capsys):
    house.play("test", 5, "at first", "idle", filmed=2)
    assert [place for place, *_ in house.made] == list(PLACES)
    (_, world, settings), (_, game, _) = house.made
    begun = [(start, seed) for start, seed in world.begun if seed is not None]  # the others wait
    assert world.begun == game.begun and sorted(begun) == [(start, 7 + start) for start in range(5)]
    assert settings["world"] == "w" and settings["dtype"] == "bfloat16" and settings["starts"].name == "starts"
    found = house.evaluations("test", "at first")
    assert found[WORLD].successes.tolist() == [True, False, True, False, True]
    assert [len(frames) for frames in house.played("test", "at first")[GAME].film.frames] == [2, 3]
    assert "at first, in the game: 60 % [" in capsys.readouterr().out


def test_what_was_played_is_not_played_again(house):
    house.play("test", 3, "one", "idle")
    house.play("test", 3, "one", "idle")
    assert len(house.made) == 2
    (house.folder / "test-one-game.npz").unlink()
    house.play("test", 3, "one", "idle")
    assert [place for place, *_ in house.made] == [*PLACES, GAME]


def test_nothing_is_kept_of_a_play_that_failed(house, monkeypatch):
    monkeypatch.setattr(playing, "evaluate", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        house.play("test", 3, "one", "idle")
    assert not list(house.folder.iterdir())
