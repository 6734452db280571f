"""Action spaces: every action becomes rows that the world understands, and nothing else does."""

from __future__ import annotations

import string

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.controls import ACTION_DIM, JUMP, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW
from wp2env.keyboard import ARROW_LEFT, ARROW_UP, SPACE, keys_to_action
from wp2env.spaces import ACTION_MODES, MAX_EVENT, ChunkActions, DiscreteActions, Turns, batch_of_one

modes = st.sampled_from(sorted(ACTION_MODES))
seeds = st.integers(0, 2**31 - 1)
views = st.integers(0, 1)
latents = st.integers(1, 4)
turns = st.builds(
    Turns,
    max_pitch=st.floats(1, 180),
    max_yaw=st.floats(1, 180),
    pitch_bins=st.sampled_from([1, 3, 7]),
    yaw_bins=st.sampled_from([1, 5, 9]),
)


def sampled(space, seed):
    space.seed(seed)
    return space.sample()


def single(mode, **arguments):
    return ChunkActions(mode, Turns(**arguments), 1, False)


def row_of(actions: ChunkActions, action, view: int = 1) -> np.ndarray:
    return actions.read(batch_of_one(action), np.array([view]))[0][0, 0]


@settings(deadline=None)
@given(modes, turns, latents, st.booleans(), views, seeds)
def test_any_sample_becomes_rows_in_the_ranges_that_the_world_knows(mode, turns, latents, per_latent, view, seed):
    actions = ChunkActions(mode, turns, latents, per_latent)
    rows, events = actions.read(batch_of_one(sampled(actions.space, seed)), np.array([view]))
    assert rows.shape == (1, latents, ACTION_DIM) and rows.dtype == np.float32 and len(events) == 1
    assert (np.abs(rows[..., [PITCH, YAW]]) <= turns.degrees * (1 + 1e-6)).all()
    assert np.isin(rows[..., [LONGITUDINAL, LATERAL]], (-1, 0, 1)).all()
    assert np.isin(rows[..., [PERSPECTIVE, JUMP]], (0, 1)).all()


@settings(deadline=None)
@given(modes, turns, latents, st.booleans(), views, seeds)
def test_the_action_made_from_a_row_is_in_the_space_and_means_that_row(mode, turns, latents, per_latent, view, seed):
    actions = ChunkActions(mode, turns, latents, per_latent)
    row = actions.read(batch_of_one(sampled(actions.space, seed)), np.array([view]))[0][0, 0]
    if mode == "discrete" and per_latent:
        row[PERSPECTIVE] = view  # "switch view", held, switches back: no single action means that row
    action = actions.action(row, view)
    assert action in actions.space
    again, events = actions.read(batch_of_one(action), np.array([view]))
    np.testing.assert_allclose(again[0, 0], row, atol=1e-3)
    assert list(events) == [""]


@settings(deadline=None, max_examples=30)
@given(modes, st.booleans(), seeds)
def test_samples_of_the_batched_space_are_read_for_all_slots(mode, per_latent, seed):
    actions = ChunkActions(mode, Turns(), 2, per_latent)
    rows, events = actions.read(sampled(batch_space(actions.space, 3), seed), np.ones(3, dtype=np.int64))
    assert rows.shape == (3, 2, ACTION_DIM) and len(events) == 3


@settings(deadline=None)
@given(st.lists(st.integers(-2, 6), min_size=5, max_size=7))
def test_multidiscrete_takes_exactly_what_its_space_contains(digits):
    actions, digits = single("multidiscrete"), np.array(digits)
    if digits in actions.space:
        assert row_of(actions, digits).shape == (ACTION_DIM,)
    else:
        with pytest.raises(ValueError, match="the action (is|has the shape) .*; give"):
            row_of(actions, digits)


@settings(deadline=None)
@given(st.lists(st.floats(-1.5, 1.5, width=32) | st.just(float("nan")), min_size=5, max_size=7))
def test_box_takes_exactly_what_its_space_contains(numbers):
    actions, numbers = single("box"), np.array(numbers, dtype=np.float32)
    if numbers in actions.space:
        assert row_of(actions, numbers).shape == (ACTION_DIM,)
    else:
        with pytest.raises(ValueError, match="the action (is|has the shape) .*; give"):
            row_of(actions, numbers)


DICT = {"camera": np.zeros(2, np.float32), "longitudinal": 1, "lateral": 1, "perspective": 1, "jump": 0}


@pytest.mark.parametrize(
    ("mode", "action", "message"),
    [
        ("dict", {**DICT, "camera": np.array([0, 1.5])}, r"camera is 1\.5 in slot 0; give numbers from -1 to 1"),
        ("dict", {**DICT, "camera": np.array([0, np.nan])}, "camera is nan"),
        ("dict", {**DICT, "camera": np.zeros(3)}, r"camera has the shape \(1, 3\); give \(1, 2\)"),
        ("dict", {**DICT, "camera": np.array(["a", "b"])}, "camera is of type"),
        ("dict", {**DICT, "longitudinal": 3}, "longitudinal is 3 in slot 0; give 0 to 2"),
        ("dict", {**DICT, "jump": 0.5}, "jump is of type float64; give whole numbers"),
        ("dict", {**DICT, "strafe": 1}, "keys differ in 'strafe'"),
        ("dict", {"camera": np.zeros(2)}, "keys differ in 'jump', 'lateral', 'longitudinal', 'perspective'"),
        ("dict", 3, "give a dict of camera, jump"),
        ("multidiscrete", DICT, "the action is a dict; this action mode takes an array"),
        ("multidiscrete", np.zeros(6), "type float64; give whole numbers"),
        ("multidiscrete", np.array([5, 0, 0, 0, 0, 0]), "the action is 5 in slot 0; give 0 to 4"),
        ("discrete", 13, "the action is 13 in slot 0; give 0 to 12"),
        ("discrete", -1, "the action is -1"),
        ("discrete", 1.0, "whole numbers"),
        ("discrete", None, "whole numbers"),
        ("discrete", np.array([1, 2]), "the action has the shape"),
        ("box", np.full(6, 1.01), "the action is 1.0"),
        ("hybrid", DICT, "keys differ in 'event'"),
        ("hybrid", {**DICT, "event": 5}, "the event of slot 0 is .*5"),
        ("hybrid", {**DICT, "event": "é"}, "printable ASCII characters, set_event takes any text"),
        ("hybrid", {**DICT, "event": "x" * (MAX_EVENT + 1)}, "up to 192"),
    ],
)
def test_an_action_outside_the_space_is_refused_in_one_sentence(mode, action, message):
    actions = single(mode)
    with pytest.raises(ValueError, match=message):
        row_of(actions, action)


def test_the_refusal_names_the_slot():
    with pytest.raises(ValueError, match="the action is 99 in slot 2"):
        single("discrete").read(np.array([0, 1, 99]), np.ones(3))


def test_events_of_a_batch_must_be_one_text_per_slot():
    actions = single("hybrid")
    batch = {**{name: np.stack([value] * 2) for name, value in DICT.items()}, "event": "it rains"}
    with pytest.raises(ValueError, match="2 texts, one per slot"):
        actions.read(batch, np.ones(2))


def test_signs_follow_the_controls_right_up_and_forward_are_positive():
    row = row_of(single("dict"), {**DICT, "camera": np.array([1, -1]), "longitudinal": 2, "lateral": 0, "jump": 1})
    assert row.tolist() == [15, -20, 1, -1, 1, 1]


def test_multidiscrete_bins_run_from_left_and_down_to_right_and_up():
    actions = single("multidiscrete")
    assert row_of(actions, [0, 0, 0, 0, 0, 0]).tolist() == [-15, -20, -1, -1, 0, 0]
    assert row_of(actions, [3, 2, 2, 2, 1, 1]).tolist() == [15, 10, 1, 1, 1, 1]


def test_an_even_number_of_bins_is_refused_since_none_would_mean_no_turn():
    with pytest.raises(ValueError, match="yaw_bins is 4; give an odd number"):
        Turns(yaw_bins=4)
    with pytest.raises(ValueError, match="max_pitch is 0; give degrees"):
        Turns(max_pitch=0)


def test_the_menu_says_what_its_choices_do():
    actions, menu = single("discrete"), DiscreteActions.menu
    assert row_of(actions, menu.index("idle")).tolist() == [0, 0, 0, 0, 1, 0]
    assert row_of(actions, menu.index("forward and turn left")).tolist() == [0, -20, 1, 0, 1, 0]
    assert row_of(actions, menu.index("right")).tolist() == [0, 0, 0, 1, 1, 0]
    assert row_of(actions, menu.index("look up")).tolist() == [15, 0, 0, 0, 1, 0]
    assert row_of(actions, menu.index("jump"))[JUMP] == 1


@pytest.mark.parametrize("view", [0, 1])
def test_choices_keep_the_view_except_switch_view(view):
    actions = single("discrete")
    seen = [row_of(actions, choice, view)[PERSPECTIVE] for choice in range(len(DiscreteActions.menu))]
    assert seen[:-1] == [view] * (len(seen) - 1) and seen[-1] == 1 - view


@pytest.mark.parametrize("view", [0, 1])
def test_a_box_perspective_near_zero_keeps_the_view(view):
    actions = single("box")
    seen = [row_of(actions, np.array([0, 0, 0, 0, value, 0]), view)[PERSPECTIVE] for value in (-0.5, 0.2, 0.5)]
    assert seen == [0, view, 1]


def test_an_action_is_held_over_a_chunk_and_read_once_per_latent_when_asked():
    held = ChunkActions("discrete", Turns(), 3, False).read(np.array([1]), np.array([1]))[0]
    assert held[0, :, LONGITUDINAL].tolist() == [1, 1, 1]
    each = ChunkActions("discrete", Turns(), 3, True).read(np.array([[1, 0, 2]]), np.array([1]))[0]
    assert each[0, :, LONGITUDINAL].tolist() == [1, 0, -1]


def test_with_one_action_per_latent_each_latent_sees_the_view_of_the_one_before():
    switch = DiscreteActions.menu.index("switch view")
    rows = ChunkActions("discrete", Turns(), 3, True).read(np.array([[switch, 0, switch]]), np.array([1]))[0]
    assert rows[0, :, PERSPECTIVE].tolist() == [0, 0, 1]


def test_multidiscrete_per_latent_is_flat_for_libraries_that_take_one_axis():
    actions = ChunkActions("multidiscrete", Turns(), 3, True)
    assert actions.space.shape == (18,)
    with pytest.raises(ValueError, match=r"the action has the shape \(1, 6\); give \(1, 18\)"):
        row_of(actions, np.zeros(6, dtype=np.int64))


def test_a_missing_latent_is_refused():
    with pytest.raises(ValueError, match="one entry for each of 3 latents"):
        row_of(ChunkActions("box", Turns(), 3, True), np.zeros((2, 6)))


def test_an_unknown_mode_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="action_mode is 'joystick'; choose one of dict, multidiscrete"):
        single("joystick")


def test_the_event_space_takes_what_people_type():
    event = single("hybrid").event
    assert "" in event and "the lights go out!" in event and string.printable in event and "x" * MAX_EVENT in event


def test_tensors_are_actions_too():
    assert row_of(single("box"), torch.tensor([0, 0, 1.0, 0, 0, 0]))[LONGITUDINAL] == 1


@pytest.mark.parametrize("mode", sorted(ACTION_MODES))
def test_keys_give_actions_of_the_space_under_sorted_codes(mode):
    actions = single(mode)
    mapping = keys_to_action(actions, actions.mode.turns if hasattr(actions.mode, "turns") else Turns(), view=1)
    assert all(action in actions.space and list(keys) == sorted(keys) for keys, action in mapping.items())
    assert row_of(actions, mapping[(ord("w"),)]).tolist() == [0, 0, 1, 0, 1, 0]
    assert row_of(actions, mapping[(ord("v"),)])[PERSPECTIVE] == 0
    assert row_of(actions, mapping[(ARROW_LEFT,)])[YAW] == -20


def test_keys_combine_where_the_space_can_say_so():
    combination = (SPACE, ord("a"), ord("w"), ARROW_UP)
    row = row_of(single("dict"), keys_to_action(single("dict"), Turns(), view=1)[combination])
    assert row.tolist() == [15, 0, 1, -1, 1, 1]
    assert combination not in keys_to_action(single("discrete"), Turns(), view=1)


def test_spaces_survive_a_batch_of_the_gymnasium_kind():
    """`batch_space` of the hybrid mode holds texts, which are read as they come: a tuple."""
    space = batch_space(single("hybrid").space, 2)
    assert isinstance(space["event"], gymnasium.spaces.Tuple)
