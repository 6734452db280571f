"""Starts in the middle of recordings: moments before a task is fulfilled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.controls import PERSPECTIVE, StructuredCaption
from world_model.data.clips import Clip
from wp2env.recorded_starts import starts_on_the_way

TASK = "walk to the red ball"


def clip(number, length, fulfilled, third_person=()):
    """Every picture of it is of one colour that tells clip and frame, and so is its action."""
    frames = np.zeros((length, 2, 2, 3), np.uint8)
    frames[..., 0], frames[..., 1] = number, np.arange(length)[:, None, None]
    actions = np.zeros((length, 6), np.float32)
    actions[:, PERSPECTIVE] = 1
    actions[list(third_person), PERSPECTIVE] = 0
    actions[:, 1] = np.arange(length)
    rewards = np.zeros(length, np.float32)
    if fulfilled is not None:
        rewards[fulfilled:] = 1
    captions = ((0, StructuredCaption("a hall", "None", "None")), (5, StructuredCaption("a yard", "None", "None")))
    return Clip(frames, actions, captions, rewards={TASK: rewards}, terminated={TASK: rewards > 0})


def place(start):
    """Clip and frame of a start's newest picture."""
    return int(start.frames[-1, 0, 0, 0]), int(start.frames[-1, 0, 0, 1])


def take(clips, count, frames=4, seed=0, task=TASK):
    return starts_on_the_way(clips, task, count, frames, np.random.default_rng(seed))


@settings(max_examples=30, deadline=None)
@given(
    ends=st.lists(st.one_of(st.none(), st.integers(1, 11)), min_size=1, max_size=6),
    frames=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_all_moments_before_the_goal_are_found_once_and_none_after_it(ends, frames, seed):
    clips = [clip(number, 12, end) for number, end in enumerate(ends)]
    wanted = {(n, t) for n, end in enumerate(ends) if end is not None for t in range(frames - 1, end)}
    if not wanted:
        with pytest.raises(ValueError, match="hold 0 moments"):
            take(clips, 1, frames)
        return
    bank = take(clips, len(wanted), frames, seed)
    places = [place(start) for start in bank]
    assert len(places) == len(wanted) and set(places) == wanted
    for start, (number, moment) in zip(bank, places, strict=True):
        window = slice(moment + 1 - frames, moment + 1)
        assert np.array_equal(start.frames, clips[number].frames[window])
        assert np.array_equal(start.actions, clips[number].actions[window])
        assert start.caption == clips[number].caption_at(moment) and start.perspective == 1 and start.origin is None


def test_moments_are_drawn_evenly_from_the_clips_and_by_the_seed():
    clips = [clip(number, 12, 10) for number in range(4)]
    bank = take(clips, 6)
    counts = np.bincount([place(start)[0] for start in bank], minlength=4)
    assert counts.min() == 1 and counts.max() == 2
    assert [place(s) for s in bank] == [place(s) for s in take(clips, 6)] != [place(s) for s in take(clips, 6, seed=1)]


def test_clips_seen_from_behind_and_too_many_starts_and_unknown_tasks_are_refused():
    assert {place(start)[0] for start in take([clip(0, 12, 9), clip(1, 12, 9, third_person=[3])], 6)} == {0}
    with pytest.raises(ValueError, match="hold 6 moments with 4 frames .* and 7 starts are asked for"):
        take([clip(0, 12, 9)], 7)
    with pytest.raises(ValueError, match="no reward for 'fly', it knows 'walk to the red ball'"):
        take([clip(0, 12, 9)], 1, task="fly")
