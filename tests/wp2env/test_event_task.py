"""The task about announced events: what is paid, and what the agent's own doing does not earn."""

from __future__ import annotations

import numpy as np
import pytest

from world_model.controls import PERSPECTIVE, YAW, StructuredCaption
from wp2env.event_task import EventHappened
from wp2env.tasks import TaskContext, make_task


def context(*colours, events=("None", "None"), yaw=0.0, view=1.0):
    """One step of two slots that each show one colour from 0 to 255."""
    frames = np.stack([np.full((1, 16, 16, 3), colour, np.uint8) for colour in colours])
    actions = np.zeros((len(colours), 1, 6), np.float32)
    actions[..., YAW], actions[..., PERSPECTIVE] = yaw, view
    captions = tuple(StructuredCaption("a hall", event=event) for event in events)
    slots = len(colours)
    return TaskContext(frames, frames[:, 0], actions, captions, np.ones(slots, int), np.ones(slots, bool), ())


def begun(task, *colours):
    task.reset(np.ones(len(colours), bool), context(*colours))
    return task


def test_a_change_after_the_announcement_is_paid_and_ends_the_episode():
    task = begun(EventHappened(), 100, 100)
    out = task(context(200, 200, events=("the lights go on", "None")))
    assert out.reward.tolist() == [1, 0] == out.terms["success"].tolist() and out.terminated.tolist() == [True, False]
    assert out.terms["change"] == pytest.approx([100 / 255, 0])


def test_slow_changes_add_up_and_flicker_is_not_paid():
    task, paid = begun(EventHappened(threshold=0.06), 100, 100), []
    for colour in (105, 110, 115, 120):
        paid.append(task(context(colour, 103, events=("dusk", "dusk"))).reward.tolist())
    assert paid == [[0, 0], [0, 0], [0, 0], [1, 0]]


@pytest.mark.parametrize("doing", [{"yaw": 9.0}, {"view": 0.0}])
def test_what_the_agents_own_doing_changes_is_not_paid(doing):
    task = begun(EventHappened(), 100, 100)
    assert not task(context(200, 200, events=("dusk", "dusk"), **doing)).reward.any()
    assert not task(context(200, 200, events=("dusk", "dusk"), view=doing.get("view", 1.0))).reward.any()
    assert task(context(240, 200, events=("dusk", "dusk"), view=doing.get("view", 1.0))).reward.tolist() == [1, 0]


def test_only_the_event_that_is_waited_for_counts():
    task = begun(EventHappened("the lights go out"), 100, 100)
    assert task(context(0, 0, events=("the lights go out", "dusk"))).reward.tolist() == [1, 0]


def test_its_state_comes_back_and_a_reset_is_of_one_slot():
    task = begun(make_task("event happened"), 100, 100)
    state = task.state_dict()
    task.reset(np.array([True, False]), context(200, 0))
    assert task(context(200, 200, events=("dusk", "dusk"))).reward.tolist() == [0, 1]
    task.load_state_dict(state)
    assert task(context(200, 100, events=("dusk", "dusk"))).reward.tolist() == [1, 0]


def test_thresholds_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="threshold is 0"):
        EventHappened(threshold=0)
