"""Twins on the engine: equal until the event begins, and different by the event alone afterwards."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from world_model.controls import NOTHING
from world_model.data.doom.events import BUILDERS
from world_model.data.doom.take import PIXEL_CHANGE, VISIBLE_SHARE
from world_model.data.doom.twins import record_twins
from world_model.data.store import MANIFEST

CONTEXT, FRAMES = 6, 18
OPTIONS = {"per_kind": 1, "context": CONTEXT, "frames": FRAMES, "split": "test"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record_twins(tmp_path_factory.mktemp("twins"), seed=3, **OPTIONS)


@pytest.fixture(scope="module")
def pairs(recorded):
    return [(recorded[k], recorded[k + 1]) for k in range(0, len(recorded), 2)]


def test_every_kind_has_its_share_in_a_level_of_its_own(pairs):
    assert Counter(shown.meta["event"]["kind"] for _, shown in pairs) == dict.fromkeys(BUILDERS, 1)
    assert len({shown.meta["level_seed"] for _, shown in pairs}) == len(pairs)
    assert {shown.meta["split"] for _, shown in pairs} == {"test"}


def test_twins_share_all_but_the_event(pairs):
    for without, shown in pairs:
        assert without.frames.shape == shown.frames.shape == (FRAMES, 64, 64, 3)
        np.testing.assert_array_equal(without.actions, shown.actions)
        np.testing.assert_array_equal(without.frames[:CONTEXT], shown.frames[:CONTEXT])
        assert without.meta | {"event": None} == shown.meta | {"event": None} and without.meta["event"] is None


def test_the_event_can_be_seen(pairs):
    for without, shown in pairs:
        differs = np.abs(without.frames.astype(int) - shown.frames).max(axis=-1) > PIXEL_CHANGE
        assert differs.mean(axis=(1, 2)).max() >= VISIBLE_SHARE[shown.meta["event"]["category"]]


def test_captions_tell_the_event_in_one_twin_only(pairs):
    for without, shown in pairs:
        assert {caption.event for _, caption in without.captions} == {NOTHING}
        assert shown.caption_at(CONTEXT - 1).event == NOTHING
        assert (
            shown.caption_at(CONTEXT).event == shown.meta["event"]["caption"]
            and shown.meta["event"]["start"] == CONTEXT
        )


def test_the_seed_decides_every_byte(recorded, tmp_path):
    def checksums(folder):
        return [shard["sha256"] for shard in json.loads((folder / MANIFEST).read_text())["shards"]]

    again = record_twins(tmp_path / "again", seed=3, **OPTIONS)
    other = record_twins(tmp_path / "other", seed=4, **OPTIONS)
    assert checksums(again.path) == checksums(recorded.path) != checksums(other.path)


def test_twins_are_recorded_once(recorded, monkeypatch):
    monkeypatch.setattr("world_model.data.doom.twins.DoomGame", None)
    assert len(record_twins(recorded.path, seed=3, **OPTIONS)) == len(recorded)
    with pytest.raises(ValueError, match="choose another folder"):
        record_twins(recorded.path, seed=4, **OPTIONS)


def test_a_kind_that_never_happens_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(BUILDERS, "hurt", lambda game, rng: None)
    monkeypatch.setattr("world_model.data.doom.twins.VISITS_PER_PAIR", 2)
    with pytest.raises(RuntimeError, match="lacking: .*hurt"):
        record_twins(tmp_path, seed=3, **OPTIONS)


@pytest.mark.parametrize(
    "wrong, message",
    [({"per_kind": 0}, "per_kind is 0"), ({"context": 18}, "context 18"), ({"split": "freedoom"}, "freedoom")],
)
def test_impossible_numbers_are_refused(tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        record_twins(tmp_path, **OPTIONS | wrong)
