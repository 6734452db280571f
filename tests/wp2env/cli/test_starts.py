"""``wp2 starts doom``: a bank for both worlds, written whole or not at all."""

from __future__ import annotations

import pytest

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from wp2env.starts import read_bank

TASK = "walk to the red ball"


def words(out, *more):
    return ("starts", "doom", "--task", TASK, "--count", "2", "--split", "test", "--out", out, "--size", "16", *more)


def test_a_bank_is_written_that_says_how_the_game_comes_there(wp2, tmp_path):
    out = tmp_path / "ball.safetensors"
    answer = wp2(*words(out, "--frames", "3"))
    assert answer.code == 0 and answer.out == f"wrote 2 starts of {TASK!r} (test) to {out}\n"
    bank = read_bank(out)
    assert bank.frames.shape == (2, 3, 16, 16, 3) and bank.actions.shape == (2, 3, 6) and len(bank.origins) == 2
    assert list(tmp_path.iterdir()) == [out]


def test_a_bank_that_cannot_be_written_leaves_the_old_one(wp2, tmp_path, monkeypatch):
    out = tmp_path / "ball.safetensors"
    assert wp2(*words(out)).code == 0
    before = out.read_bytes()

    def full(tensors, file, metadata):
        raise OSError(28, "No space left on device", file)

    monkeypatch.setattr("wp2env.starts.save_file", full)
    assert "No space left" in wp2(*words(out, "--seed", "1")).error
    assert out.read_bytes() == before and list(tmp_path.iterdir()) == [out]


def test_where_nothing_can_be_written_nothing_is_recorded(wp2, tmp_path, monkeypatch):
    monkeypatch.setattr("world_model.data.doom.task_starts.record_task_starts", None)
    assert "does not exist" in wp2(*words(tmp_path / "none" / "ball.safetensors")).error
    assert "is a folder" in wp2(*words(tmp_path)).error


@pytest.mark.parametrize(
    ("more", "named"), [(("--task", "fly"), "'fly'"), (("--size", "4"), "from 8 to"), (("--count", "0"), "from 1 to")]
)
def test_wrong_options_are_named(wp2, tmp_path, more, named):
    assert named in wp2(*words(tmp_path / "x", *more)).error


def test_moments_of_recordings_become_a_bank_that_only_a_world_takes(wp2, tmp_path):
    data, out = tmp_path / "data", tmp_path / "moments.safetensors"
    assert (
        wp2("record", "doom", "--play", "tasks", "--clips", "12", "--frames", "12", "--size", "16", "--out", data).code
        == 0
    )
    moments = ("starts", "recordings", "--task", TASK, "--data", data, "--out", out, "--frames", "2")
    answer = wp2(*moments, "--count", "3")
    assert answer.code == 0 and answer.out.startswith("wrote 3 recorded moments before"), answer.error
    bank = read_bank(out)
    assert bank.frames.shape == (3, 2, 16, 16, 3) and bank.actions.shape == (3, 2, 6) and bank.origins is None
    before = out.read_bytes()
    assert "and 99999 starts are asked for" in wp2(*moments, "--count", "99999").error
    assert out.read_bytes() == before
