"""Policies meet in the same starts, and what was played once is not played again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agents.crippled_worlds import ShuffledActions, StillStream
from agents.places import WORLD
from benchmarks import arena, policy_ranking
from benchmarks.arena import SHUFFLED, STILL, UNTRAINED, Arena, fingerprint
from world_model.checkpoint import save_world
from world_model.world import World


@pytest.fixture
def place(small_world, tmp_path, monkeypatch, climber):
    """An arena whose policies are named by their chance to climb."""
    monkeypatch.setattr(arena, "load_policy", lambda text, num_envs, seed: climber(float(text), num_envs, seed))
    world = shutil.copytree(small_world, tmp_path / "world")
    return Arena("climb", str(world), world / "test.safetensors", 8, 4, 0, "cpu", "float32", tmp_path / "played")


def play(place, make, policies=("0.9", "0.2"), name="game", lengths=(4, 8), episodes=range(6)):
    return place.play(name, make, {f"climber {policy}": (policy, 0) for policy in policies}, lengths, episodes)


def test_every_policy_is_played_at_every_length(place, ladder):
    played = play(place, lambda: ladder(4, 3))
    assert list(played) == [("climber 0.9", 4), ("climber 0.9", 8), ("climber 0.2", 4), ("climber 0.2", 8)]
    assert all(found.starts.tolist() == list(range(6)) for found in played.values())
    assert played["climber 0.9", 4].lengths.max() <= 4 < played["climber 0.2", 8].lengths.max()
    assert played["climber 0.9", 8].successes.all() and arena.measures(played["climber 0.9", 4]) == [
        "success",
        "return",
    ]


def test_shorter_episodes_are_not_played_again(place, ladder):
    of_both = play(place, lambda: ladder(4, 3))
    assert len([*place.kept.iterdir()]) == 2, "one for each policy"
    shorter = play(place, lambda: ladder(4, 3), lengths=(8, 2))
    assert len([*place.kept.iterdir()]) == 2 and shorter["climber 0.2", 2].lengths.max() == 2
    assert shorter["climber 0.2", 8].as_dict() == of_both["climber 0.2", 8].as_dict()


def test_what_was_played_is_read_and_its_place_is_not_even_made(place, ladder):
    def never():
        raise AssertionError("the place was made again")

    first, again = play(place, lambda: ladder(4, 3)), play(place, never)
    for key, found in first.items():
        for name, values in found.measures.items():
            assert (again[key].measures[name] == values).all()
    with pytest.raises(AssertionError, match="made again"):
        play(place, never, policies=("0.9", "0.3"))


@pytest.mark.parametrize("change", [{"name": "world"}, {"episodes": range(6, 12)}, {"lengths": (9,)}])
def test_other_questions_are_played_anew(place, ladder, change):
    play(place, lambda: ladder(4, 3))
    made = []
    play(place, lambda: made.append(1) or ladder(4, 3), **change)
    assert made == [1]


def test_another_world_is_played_anew_and_the_game_is_not(place, ladder):
    made = []
    for seed in (1, 2):
        save_world(World.random("tiny", seed), Path(place.world))
        for name in ("world", "game"):
            play(place, lambda name=name: made.append(name) or ladder(4, 3), name=name)
    assert made == ["world", "game", "world"]


def test_the_controls_are_the_world_without_what_they_lack(place):
    place = replace(place, task="constant")
    made = {name: make() for name, make in place.controls().items()}
    streams = {name: env.unwrapped.episodes.stream for name, env in made.items()}
    assert isinstance(streams[STILL], StillStream) and isinstance(made[SHUFFLED], ShuffledActions)
    head = place.make(WORLD).episodes.stream.world.transformer.head.weight
    other = streams[UNTRAINED].world
    assert streams[SHUFFLED].world.transformer.head.weight is head is streams[STILL].inner.world.transformer.head.weight
    assert other is not streams[SHUFFLED].world and str(other.path) == place.world
    for env in made.values():
        env.reset(seed=0, options={"start_index": 15})
        assert env.num_envs == 4 and not env.step([0] * 4)[1].any()


def test_damage_to_what_is_kept_is_named(place, ladder):
    play(place, lambda: ladder(4, 3))
    file = next(place.kept.iterdir())
    file.write_text(json.dumps({"episodes": {}}))
    with pytest.raises(ValueError, match=f"{file.name} is damaged .*; delete it"):
        play(place, lambda: ladder(4, 3))


def test_a_policy_is_known_by_its_weights(tmp_path):
    assert fingerprint("random") == "random"
    for name, weights in (("a", b"1"), ("b", b"2"), ("c", b"1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.zip").write_bytes(weights)
    a, b, c = (fingerprint(str(tmp_path / name)) for name in "abc")
    assert a == c != b and a == fingerprint(str(tmp_path / "a" / "policy.zip"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--episodes", "0"], "--episodes is 0; give at least 1"),
        (["--envs", "0"], "--envs is 0; give at least 1"),
        (["--clips", "0"], "--clips is 0; give at least 1"),
        (["--seed", "-1"], "--seed is -1; give a number from 0 on"),
    ],
)
def test_impossible_numbers_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        arena.settle(policy_ranking.parse(words))


def test_too_few_starts_are_refused(small_world, tmp_path):
    settings = policy_ranking.parse(["--starts", str(small_world / "test.safetensors"), "--episodes", "17"])
    with pytest.raises(ValueError, match="--episodes is 17 and .* holds 16 starts"):
        arena.build(settings, 8, 32)
    settings = policy_ranking.parse(["--starts", str(tmp_path / "none")])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        arena.build(settings, 8, 32)


def test_starts_and_recordings_are_made_once(tmp_path):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    settings = policy_ranking.parse(["--out", str(tmp_path), "--episodes", "1", "--clips", "2"])
    place = arena.build(settings, 8, 32)
    written = place.starts.stat().st_mtime_ns
    assert len(arena.read_bank(place.starts)) == 2, "as many again for the ceiling"
    assert arena.build(settings, 8, 32).starts.stat().st_mtime_ns == written
    data = arena.recordings(settings, 32)
    weights = tmp_path / "clone" / "policy.safetensors"
    made = []
    for seed in (0, 0, 1):
        arena.cloned(data, tmp_path / "clone", "walk to the red ball", 1, seed)
        made.append(weights.stat().st_ino)
    assert made[0] == made[1] != made[2]
