"""The bank: recorded first frames become starts, half in each view, from as many levels as there are."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from world_model.controls import FIRST_PERSON, THIRD_PERSON
from world_model.data.store import ClipStore
from wp2env.cli import bank
from wp2env.starts import BANK_FILE, read_bank


@pytest.fixture
def world(bankless_folder, tmp_path) -> Path:
    return shutil.copytree(bankless_folder, tmp_path / "world")


def test_a_world_gets_starts_that_the_demo_and_the_environment_begin_from(wp2, data, world, make):
    answer = wp2("bank", "--data", data, "--world", world, "--count", "6")
    assert answer.code == 0 and answer.out == f"wrote 6 starts to {world / BANK_FILE}\n"
    starts = read_bank(world / BANK_FILE)
    assert starts.frames.shape == (6, 1, 32, 32, 3) and sorted(starts.perspectives) == [0, 0, 0, 1, 1, 1]
    store = ClipStore(data)
    for place, caption in enumerate(starts.captions):
        number = int(caption.scene.removeprefix("room "))
        np.testing.assert_array_equal(starts.frames[place, 0], store[number].frames[0])
        third = starts.perspectives[place] == THIRD_PERSON
        assert caption.character == ("a sergeant" if third else "a black-clad sergeant holding a shotgun")
    assert make(world=str(world)).reset(seed=0)[1]["start_index"] in range(6)
    assert wp2("demo", "--world", world, "--actions", "w-2", "--out", world / "a.gif").code == 0
    assert {path.name for path in world.iterdir()} == {"config.json", "world.safetensors", BANK_FILE, "a.gif"}


def test_levels_are_as_many_as_can_be(data):
    chosen = bank.choose(ClipStore(data), 8)
    for view in (FIRST_PERSON, THIRD_PERSON):
        levels = [clip.meta["level_seed"] for clip in chosen if clip.actions[0, 4] == view]
        assert sorted(levels) == [0, 1, 2, 3]


def test_an_odd_number_has_one_more_in_first_person(data):
    views = [int(clip.actions[0, 4]) for clip in bank.choose(ClipStore(data), 5)]
    assert sorted(views) == [0, 0, 1, 1, 1]


def test_a_bank_is_replaced(wp2, data, world):
    for count in ("8", "2"):
        assert wp2("bank", "--data", data, "--world", world, "--count", count).code == 0
        assert len(read_bank(world / BANK_FILE)) == int(count)


def test_what_does_not_fit_is_one_sentence(wp2, data, world, tmp_path, wide_data):
    assert "only 8 clips begin in third person" in wp2("bank", "--data", data, "--world", world, "--count", "20").error
    assert (
        "48x48 and those of the world 32x32" in wp2("bank", "--data", wide_data, "--world", world, "--count", "2").error
    )
    assert "no clip store" in wp2("bank", "--data", tmp_path / "none", "--world", world).error
    assert "there is no world" in wp2("bank", "--data", data, "--world", tmp_path / "none").error
    assert not (world / BANK_FILE).exists()
