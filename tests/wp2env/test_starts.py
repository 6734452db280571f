"""Starts: banks on disk, captions in view, and pictures of any size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from world_model.controls import PERSPECTIVE, StructuredCaption
from wp2env.starts import Start, StartBank, as_frames, find_bank, newest_whole_chunks, read_bank


def bank_of(count=2, frames=3):
    pictures = np.random.default_rng(0).integers(0, 256, (count, frames, 16, 24, 3), dtype=np.uint8)
    captions = tuple(StructuredCaption(f"hall {i}", "a marine", "it rains") for i in range(count))
    return StartBank(pictures, captions, np.array([0, 1][:count], dtype=np.uint8))


def test_a_bank_comes_back_from_its_file_as_it_was(tmp_path):
    bank, file = bank_of(), tmp_path / "bank.safetensors"
    bank.save(file)
    again = read_bank(file)
    assert np.array_equal(again.frames, bank.frames) and again.captions == bank.captions and len(again) == 2
    assert again[1].perspective == 1 and again[0].perspective == 0 and again[1].index == 1


def with_origins(bank):
    actions = np.random.default_rng(1).normal(size=(*bank.frames.shape[:2], 6)).astype(np.float32)
    origins = tuple({"level_seed": place, "start": {"x": 1.5}, "look": {"weapon": ""}} for place in range(len(bank)))
    return replace(bank, actions=actions, origins=origins)


def test_a_bank_for_the_true_game_keeps_actions_and_origins(tmp_path):
    bank, file = with_origins(bank_of()), tmp_path / "bank.safetensors"
    bank.save(file)
    again = read_bank(file)
    assert again.origins == bank.origins and np.array_equal(again.actions, bank.actions)
    start = again[1]
    assert start.origin == bank.origins[1] and np.array_equal(start.rows(1), bank.actions[1])
    assert not start.rows(4)[:, :4].any() and bank_of()[1].origin is None  # rows of a frame are none of four frames


def test_origins_without_their_actions_and_actions_of_another_shape_are_refused(tmp_path):
    bank, file = with_origins(bank_of()), tmp_path / "bank.safetensors"
    replace(bank, actions=None).save(file)
    with pytest.raises(ValueError, match="2 starts, 2 origins and no actions"):
        read_bank(file)
    replace(bank, actions=bank.actions[:, :1]).save(file)
    with pytest.raises(ValueError, match="a row for each frame"):
        read_bank(file)


def test_a_bank_is_read_once_and_again_when_its_file_changes(tmp_path):
    file = tmp_path / "bank.safetensors"
    bank_of(2).save(file)
    first = read_bank(file)
    assert read_bank(file) is first
    bank_of(1).save(file)
    assert len(read_bank(file)) == 1


def test_the_worlds_own_bank_is_found_and_one_of_the_users_goes_before(tmp_path):
    assert find_bank(None, tmp_path) is None and find_bank(None, None) is None
    bank_of(2).save(tmp_path / "starts.safetensors")
    assert len(find_bank(None, tmp_path)) == 2
    own = bank_of(1)
    assert find_bank(own, tmp_path) is own
    own.save(tmp_path / "other.safetensors")
    assert len(find_bank(str(tmp_path / "other.safetensors"), tmp_path)) == 1


CAPTIONS = '[{"scene": "a"}, {"scene": "b"}]'


@pytest.mark.parametrize(
    ("tensors", "captions", "message"),
    [
        ({}, CAPTIONS, "is no bank of starts"),
        ({"frames": np.zeros((2, 1, 8, 8, 3), np.uint8)}, CAPTIONS, "is no bank of starts"),
        ({"frames": np.zeros((2, 1, 8, 8, 3), np.float32)}, CAPTIONS, "are float32 .*; a bank holds uint8"),
        ({"frames": np.zeros((2, 8, 8, 3), np.uint8)}, CAPTIONS, r"are uint8 \[2, 8, 8, 3\]; a bank holds"),
        ({"frames": np.zeros((2, 1, 8, 8, 3), np.uint8)}, '[{"scene": "a"}]', "holds 2 starts, 1 captions"),
        ({"frames": np.zeros((2, 1, 8, 8, 3), np.uint8)}, '[{"mood": "a"}]', "is no bank of starts .*mood"),
        ({"frames": np.zeros((2, 1, 8, 8, 3), np.uint8)}, "no json", "is no bank of starts"),
    ],
)
def test_a_file_that_is_no_bank_says_what_is_wrong(tmp_path, tensors, captions, message):
    file = tmp_path / "bank.safetensors"
    whole = len(tensors) and message != "is no bank of starts"
    extra = {"perspective": np.ones(2, np.uint8)} if whole or captions == "no json" else {}
    save_file({**tensors, **extra}, str(file), metadata={"captions": captions})
    with pytest.raises(ValueError, match=message):
        read_bank(file)


def test_a_damaged_or_missing_file_is_named(tmp_path):
    file = tmp_path / "bank.safetensors"
    with pytest.raises(FileNotFoundError, match="there is no file .*bank.safetensors'; give `starts=` a bank"):
        read_bank(file)
    file.write_bytes(b"half a file")
    with pytest.raises(ValueError, match="bank.safetensors is no bank of starts"):
        read_bank(file)


def test_the_character_is_named_in_third_person_only():
    caption = StructuredCaption("a hall", "a marine", "it rains")
    assert Start(None, caption, perspective=1).caption_in_view() == caption.replace(character="None")
    assert Start(None, caption, perspective=0).caption_in_view() == caption


def test_a_starts_rows_are_idle_one_per_latent_in_its_perspective():
    frames = np.zeros((9, 8, 8, 3), np.uint8)
    rows = Start(frames, StructuredCaption("x"), perspective=0).rows(frames_per_latent=4)
    assert rows.shape == (3, 6) and not rows.any()
    assert Start(None, StructuredCaption("x")).rows(4)[:, PERSPECTIVE].tolist() == [1]


@given(frames=st.integers(1, 40), chunk=st.integers(1, 16))
def test_whole_chunks_are_the_newest_frames_and_as_many_as_fit(frames, chunk):
    kept = newest_whole_chunks(np.arange(frames), chunk)
    assert kept[-1] == frames - 1 and (len(kept) - 1) % chunk == 0 and frames - len(kept) < chunk


@settings(deadline=None)
@given(height=st.integers(1, 80), width=st.integers(1, 80))
def test_pictures_of_any_size_become_the_worlds_size_and_keep_their_colour(height, width):
    frames = as_frames(np.full((height, width, 3), (10, 120, 250), np.uint8), (16, 32, 3))
    assert frames.shape == (1, 16, 32, 3) and frames.dtype == np.uint8
    assert (np.abs(frames.astype(int) - (10, 120, 250)) <= 1).all()


def test_a_picture_of_the_worlds_size_is_taken_to_the_last_bit_and_copied():
    picture = np.random.default_rng(0).integers(0, 256, (16, 32, 3), dtype=np.uint8)
    frames = as_frames(picture, (16, 32, 3))
    assert np.array_equal(frames[0], picture) and not np.shares_memory(frames, picture)


def test_a_wide_picture_loses_its_sides_and_a_high_one_its_top_and_bottom():
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    assert as_frames(wide, (10, 10, 3)).min() == 255
    assert as_frames(wide.swapaxes(0, 1), (10, 10, 3)).min() == 255
