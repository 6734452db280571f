"""Captions and events: which are in force, what `info` tells of them, and that the world reads them."""

from __future__ import annotations

import numpy as np
import pytest

from world_model.controls import StructuredCaption

pytestmark = pytest.mark.filterwarnings("error")


def test_info_tells_the_caption_in_force_in_a_fresh_dict(make):
    env = make()
    caption = env.reset(seed=0, options={"start_index": 0})[1]["caption"]
    assert caption == {"scene": "hall 0", "character": "None", "event": "None"}
    caption["scene"] = "scribbled over"
    assert env.step(env.idle_action())[4]["caption"]["scene"] == "hall 0"
    assert env.caption == StructuredCaption("hall 0")


def test_set_event_holds_until_the_next_one_and_none_ends_it(make):
    env = make()
    env.reset(seed=0)
    heard = []
    for announce in ("fog rolls in", ..., "it snows", None):
        if announce is not ...:
            env.set_event(announce)
        heard.append(env.step(env.idle_action())[4]["caption"]["event"])
    assert heard == ["fog rolls in", "fog rolls in", "it snows", "None"]


def test_an_event_and_a_scene_change_the_picture(make):
    frames = []
    for change in ({}, {"event": "fog rolls in"}, {"scene": "a beach"}):
        env = make()
        env.reset(seed=0)
        env.set_caption(**change)
        frames.append(env.step(env.idle_action())[0])
    assert not np.array_equal(frames[0], frames[1]) and not np.array_equal(frames[0], frames[2])


def test_hybrid_actions_write_events_into_the_world(make):
    env = make(action_mode="hybrid")
    env.reset(seed=0)
    heard = []
    for event in ("", "fog rolls in", "", "None"):
        heard.append(env.step({**env.idle_action(), "event": event})[4]["caption"]["event"])
    assert heard == ["None", "fog rolls in", "fog rolls in", "None"]


def test_an_event_of_an_action_draws_what_set_event_draws(make, same):
    env, twin = make(action_mode="hybrid"), make()
    env.reset(seed=0), twin.reset(seed=0)
    twin.set_event("fog rolls in")
    assert same(env.step({**env.idle_action(), "event": "fog rolls in"}), twin.step(twin.idle_action()))


def test_the_character_is_named_in_third_person_only(make):
    env = make()
    env.reset(seed=0, options={"start_index": 0})
    seen = [env.step({**env.idle_action(), "perspective": view})[4]["caption"]["character"] for view in (1, 0, 0, 1)]
    assert seen == ["None", "marine 0", "marine 0", "None"]


def test_a_start_in_third_person_shows_its_character_at_once(make):
    env = make()
    assert env.reset(options={"start_index": 1})[1]["caption"]["character"] == "marine 1"
    assert env.reset(options={"start_index": 1, "perspective": 1})[1]["caption"]["character"] == "None"


def test_a_character_of_the_users_holds_in_both_views_until_the_reset(make):
    env = make()
    env.reset(seed=0, options={"start_index": 0, "caption": {"character": "a robot"}})
    seen = [env.step({**env.idle_action(), "perspective": view})[4]["caption"]["character"] for view in (1, 0)]
    env.set_caption(character="a cat")
    seen += [env.step({**env.idle_action(), "perspective": view})[4]["caption"]["character"] for view in (0, 1)]
    env.reset(options={"start_index": 0})
    seen.append(env.step({**env.idle_action(), "perspective": 0})[4]["caption"]["character"])
    assert seen == ["a robot", "a robot", "a cat", "a cat", "marine 0"]
