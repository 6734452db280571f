"""Reset options, masks and seeds: read whole, before anything changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from world_model.controls import StructuredCaption
from wp2env.options import StartRequest, caption_fields, read_mask, read_requests, read_seeds
from wp2env.starts import StartBank

BANK = StartBank(
    np.zeros((2, 1, 8, 8, 3), np.uint8), (StructuredCaption("a"), StructuredCaption("b")), np.array([1, 0], np.uint8)
)


def requests(options, slots=2, bank=BANK):
    return read_requests(options, np.ones(slots, bool), (8, 8, 3), bank)


def test_no_options_ask_for_a_start_drawn_from_the_bank():
    assert requests({}) == {0: StartRequest(), 1: StartRequest()}
    assert StartRequest().start(BANK, drawn=1).caption.scene == "b"


def test_only_the_slots_of_the_mask_are_asked():
    options = {"start_index": [7, 1]}  # 7 does not exist, and nobody wants it
    assert read_requests(options, np.array([False, True]), (8, 8, 3), BANK) == {1: StartRequest(index=1)}


def test_the_captions_fields_replace_the_starts():
    start = StartRequest(caption={"event": "it rains"}).start(BANK, drawn=0)
    assert start.caption == StructuredCaption("a", event="it rains")


def test_a_structured_caption_leaves_open_what_it_does_not_name():
    assert caption_fields(StructuredCaption("a hall")) == {"scene": "a hall"}
    assert caption_fields(StructuredCaption("a hall", event="it rains")) == {"scene": "a hall", "event": "it rains"}
    assert caption_fields({"character": "None"}) == {"character": "None"}


@pytest.mark.parametrize("caption", [["scene"], {"scene": 3}, {"scene": ""}, {1: "x"}, StructuredCaption(" ")])
def test_a_caption_of_nonsense_is_refused(caption):
    with pytest.raises(ValueError, match="caption"):
        caption_fields(caption)


def test_an_index_asks_for_a_bank_even_beside_text_only():
    with pytest.raises(ValueError, match="exclude each other"):
        requests({"text_only": True, "start_index": 0, "caption": {"scene": "x"}}, bank=None)


def test_the_mask_is_a_copy_and_may_be_a_tensor():
    mask = np.array([True, False])
    assert read_mask({"reset_mask": mask}, 2) is not mask
    assert read_mask({"reset_mask": torch.tensor([True, False])}, 2).tolist() == [True, False]
    assert read_mask({}, 2).all()


@given(seed=st.integers(0, 2**64), slots=st.integers(1, 8))
def test_one_seed_counts_up_over_the_slots(seed, slots):
    assert read_seeds(seed, slots) == {slot: seed + slot for slot in range(slots)}


@pytest.mark.parametrize("seeds", [[4, None], (4, None), np.array([4, 9]), range(4, 6)])
def test_seeds_come_in_any_sequence(seeds):
    assert read_seeds(seeds, 2) == dict(enumerate(None if seed is None else int(seed) for seed in seeds))


@pytest.mark.parametrize("seed", [-1, 1.0, "7", {1, 2}, [0.5, 1], [-1, 0], np.array([0.5, 1.5]), [1, 2, 3], object()])
def test_a_seed_of_nonsense_is_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        read_seeds(seed, 2)
