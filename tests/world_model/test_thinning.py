"""What a bounded memory forgets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.config import TINY
from world_model.thinning import kept_slots, slot_count
from world_model.transformer.block import KeyValue
from world_model.transformer.cache import HistoryCache


@given(complete=st.integers(0, 150), stride=st.integers(1, 4), budget=st.integers(2, 20))
@settings(max_examples=60, deadline=None)
def test_the_memory_keeps_the_oldest_and_the_newest_and_stays_within_its_budget(complete, stride, budget):
    kept = kept_slots(complete, stride, budget)
    assert list(kept) == sorted(set(kept)) and len(kept) == min(complete, budget)
    if complete:
        assert kept[0] == 0 and kept[-1] == complete - 1


def test_spacing_grows_with_age():
    kept = kept_slots(2000, 2, 24)
    gaps = [b - a for a, b in zip(kept, kept[1:], strict=False)]
    ages = [2000 - slot for slot in kept[1:]]
    assert all(gap <= max(2, 0.75 * age) for gap, age in zip(gaps, ages, strict=True))
    assert gaps[0] > 100 and gaps[-1] <= 2


def test_nothing_is_kept_without_a_budget():
    assert kept_slots(9, 2, 0) == ()


def test_a_rollouts_cache_holds_exactly_these_slots():
    memory = TINY.memory
    cache = HistoryCache.empty(TINY, 1, torch.zeros(()))
    tokens = TINY.memory_grid[0] * TINY.memory_grid[1]
    shape = (1, TINY.transformer.heads, tokens, TINY.transformer.width // TINY.transformer.heads)
    for slot in range(40):
        new = [KeyValue(torch.full(shape, float(slot)), torch.zeros(shape))] * TINY.transformer.depth
        cache.push_slot(new, torch.tensor([memory.temporal_stride * (slot + 1)]), torch.tensor([True]))
        kept = kept_slots(slot + 1, memory.temporal_stride, memory.budget_slots)
        held = [time // memory.temporal_stride - 1 for time in cache.slot_time[0].tolist()]
        assert tuple(sorted(index for index in held if index >= 0)) == kept
        sink = TINY.token_grid[0] * TINY.token_grid[1]
        stored = cache.key[0, 0, 0, sink : sink + memory.budget_slots * tokens : tokens, 0].tolist()
        assert [value for value, index in zip(stored, held, strict=True) if index >= 0] == [
            float(index) for index in held if index >= 0
        ]


@pytest.mark.parametrize(("latents", "slots"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_a_slot_is_complete_with_its_last_latent(latents, slots):
    assert slot_count(latents, 2) == slots
