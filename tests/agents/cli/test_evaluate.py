"""``wp2 evaluate``: the table, the files that it writes, and what it refuses."""

from __future__ import annotations

import json

import imageio.v2 as imageio
import pytest

from agents import playing
from agents.evaluate import evaluate


@pytest.fixture
def play(wp2, folder):
    """Runs ``wp2 evaluate`` in the tiny world, which has two starts."""
    return lambda *words: wp2("evaluate", *words, "--world", folder, "--steps", 3)


def test_a_table_a_report_and_a_video_come_out(play, tmp_path):
    file, video = tmp_path / "found.json", tmp_path / "found.gif"
    answer = play("scripted", "--task", "explore", "--json", file, "--video", video)
    assert answer.code == 0 and "scripted: 'explore', 2 episodes of up to 3 steps" in answer.out
    assert "| length | 3.00 [3.00, 3.00] |" in answer.out
    found = json.loads(file.read_text())
    assert found["places"]["world"]["episodes"]["start"] == [0, 1]
    assert found["places"]["world"]["means"]["length"] == {"mean": 3, "low": 3, "high": 3}
    assert found["settings"]["policy"] == "scripted" and found["world - game"] == {}
    assert len(imageio.mimread(video)) >= 4


def test_both_places_are_compared_start_by_start(play, corridor, folder, tmp_path, monkeypatch):
    """Places that are drawn by hand, so that this needs no game."""
    monkeypatch.setattr(playing, "make_env", lambda place, envs, **arguments: corridor(envs))
    file, video = tmp_path / "both.json", tmp_path / "both.mp4"
    starts = folder / "starts.safetensors"
    answer = play("idle", "--in", "both", "--starts", starts, "--json", file, "--video", video)
    assert "in the world" in answer.out and "in the game" in answer.out and "world - game" in answer.out
    assert "| agreement |" in answer.out and "world left, game right" in answer.out
    assert json.loads(file.read_text())["world - game"]["agreement"]["mean"] == 1
    assert imageio.get_reader(video).get_data(0).shape[1] > 2 * 64 * 3


def test_fewer_episodes_and_slots_may_be_asked_for(play, monkeypatch):
    asked = {}

    def spy(policy, env, starts, *more):
        asked.update(slots=env.num_envs, starts=list(starts))
        return evaluate(policy, env, starts, *more)

    monkeypatch.setattr(playing, "evaluate", spy)
    assert play("idle", "--task", "explore", "--episodes", 1).code == 0
    assert asked == {"slots": 1, "starts": [0]}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nobody"], "there is no policy 'nobody'; name one of random, idle"),
        (["idle", "--episodes", 3], "there are 2 starts for 3 episodes; ask for fewer"),
        (["idle", "--in", "game"], "the true game needs --starts; write them with `wp2 starts doom`"),
        (["idle", "--in", "both"], "the true game needs --starts"),
        (["idle", "--starts", "none.safetensors"], "there is no file 'none.safetensors'"),
        (["idle", "--task", "sing"], "the task 'sing' is not known"),
        (["idle", "--video", "film.txt"], "is no video file"),
        (["idle", "--json", "nowhere/found.json"], "the folder nowhere does not exist; make it first"),
    ],
)
def test_mistakes_are_answered_with_one_sentence(play, words, sentence):
    assert sentence in play(*words).error
