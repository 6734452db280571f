"""Control scripts, schedules and the caption template: what parses, what does not, and what it means."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from world_model.control_scripts import (
    CONTROLS,
    MAX_LATENTS,
    Command,
    ControlScriptError,
    action_rows,
    chunk_values,
    format_actions,
    parse_actions,
    parse_schedule,
    perspective_column,
)
from world_model.controls import (
    FIRST_PERSON,
    JUMP,
    LATERAL,
    LONGITUDINAL,
    PERSPECTIVE,
    PITCH,
    YAW,
    FrameAction,
    StructuredCaption,
)

GOLDEN = Path(os.environ.get("WP2_GOLDEN") or Path(__file__).parents[3] / "shared" / "golden")
GOLDEN_FILE = GOLDEN / "i_text_and_inputs.json"
needs_golden = pytest.mark.skipif(not GOLDEN_FILE.is_file(), reason="the reference files are not here (WP2_GOLDEN)")

sign = st.sampled_from((-1, 0, 1))
commands = st.builds(Command, st.integers(1, 400), sign, sign, sign, sign, st.sampled_from((0, 1)))
script_like = st.text("wasdleftrightupdownspacenone+-,0123456789 \u0660\u017f", max_size=60)
plain = st.text(max_size=40).filter(lambda text: " The character is:" not in text and " The event is:" not in text)


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN_FILE.read_text())


@needs_golden
def test_golden_action_scripts_give_the_published_rows(golden):
    for case in golden["action_ok"]:
        view = {"tps": 0, "fps": 1}[case["perspective"]]
        rows = action_rows(case["action"], view, case["yaw"], case["pitch"])
        np.testing.assert_array_equal(rows, np.array(case["rows"], dtype=np.float32), err_msg=case["action"])


@needs_golden
def test_golden_malformed_actions_are_refused(golden):
    for case in golden["action_checks"]:
        if case["accepted"]:
            parse_actions(case["action"])
        else:
            with pytest.raises(ControlScriptError):
                parse_actions(case["action"])


@needs_golden
def test_golden_event_schedules(golden):
    for case in golden["prompt_event"]:
        arguments = case["prompt_event"], case["latents"], case["chunk_length"], ("prompt1", "prompt2")
        if case["chunk_prompts"] is None:
            with pytest.raises(ControlScriptError):
                parse_schedule(*arguments)
        else:
            assert chunk_values(parse_schedule(*arguments), case["chunk_length"]) == case["chunk_prompts"]


@needs_golden
def test_golden_caption_templates(golden):
    texts = {"scene": "a yard", "character": "a marine in red", "event": "it rains"}
    kept = {"fps": ("scene", "event"), "fps_no_event": ("scene",), "tps": texts, "tps_no_event": ("scene", "character")}
    for name, template in golden["prompt_templates"].items():
        caption = StructuredCaption(**{field: texts[field] for field in kept[name]})
        assert caption.text() == template.format(**texts)


def test_first_row_is_idle_and_counts_toward_the_first_command():
    rows = action_rows("w+right+up+space-3,a-2", FIRST_PERSON, yaw=4, pitch=2)
    assert rows.shape == (5, 6) and rows.dtype == np.float32
    np.testing.assert_array_equal(rows[0], FrameAction().row())
    np.testing.assert_array_equal(rows[1], FrameAction(2, 4, 1, 0, FIRST_PERSON, 1).row())
    np.testing.assert_array_equal(rows[2], rows[1])
    np.testing.assert_array_equal(rows[3], FrameAction(lateral=-1).row())


@pytest.mark.parametrize(
    ("token", "column", "value"),
    [("w", LONGITUDINAL, 1), ("s", LONGITUDINAL, -1), ("d", LATERAL, 1), ("a", LATERAL, -1), ("right", YAW, 3),
     ("left", YAW, -3), ("up", PITCH, 3), ("down", PITCH, -3), ("space", JUMP, 1)],
)  # fmt: skip
def test_each_control_sets_its_own_column(token, column, value):
    row = action_rows(f"{token}-2")[1]
    expected = FrameAction().row()
    expected[column] = value
    np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize(
    ("script", "token", "segment", "position"),
    [
        ("w-4, jump-4", "jump", 1, 5),
        ("w-4,s", "s", 1, 4),
        ("w-4,s-0", "0", 1, 6),
        ("w-4,, w + a - 3", "a", 2, 10),
        ("left+left-4", "left", 0, 5),
        ("none+w-4", "w", 0, 5),
        ("w- 04", "04", 0, 3),
        (f"w-{MAX_LATENTS + 1}", str(MAX_LATENTS + 1), 0, 2),
        ("w-" + "9" * 10_000, "9" * 10_000, 0, 2),
    ],
)
def test_an_error_names_the_token_and_its_place(script, token, segment, position):
    with pytest.raises(ControlScriptError) as caught:
        parse_actions(script)
    error = caught.value
    assert (error.token, error.segment, error.position) == (token, segment, position)
    assert script[position:].startswith(token)
    assert f"segment {segment}" in str(error) and f"character {position}" in str(error)
    assert len(str(error)) < 300


@given(st.lists(commands, min_size=1, max_size=20))
def test_parsing_inverts_formatting(sequence):
    assert parse_actions(format_actions(sequence)) == sequence


@given(st.one_of(st.text(max_size=60), script_like))
def test_garbage_raises_nothing_but_a_control_script_error(script):
    for parse in (parse_actions, lambda text: parse_schedule(text, 16), lambda text: perspective_column(text, 16)):
        try:
            parse(script)
        except ControlScriptError as error:
            assert error.script == script and script[error.position :].startswith(error.token)


@given(st.lists(commands, min_size=1, max_size=5))
def test_rows_hold_only_what_a_row_may_hold(sequence):
    rows = action_rows(format_actions(sequence))
    assert len(rows) == sum(command.latents for command in sequence)
    assert set(np.unique(rows[:, [LONGITUDINAL, LATERAL]])) <= {-1, 0, 1}
    assert set(np.unique(rows[:, [PERSPECTIVE, JUMP]])) <= {0, 1}


def test_a_view_script_sets_the_perspective_of_each_row():
    views = perspective_column("tps-2,fps-3", 5)
    rows = action_rows("w-5", views)
    np.testing.assert_array_equal(rows[:, PERSPECTIVE], [0, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="5 perspectives for 4 latents"):
        action_rows("w-4", views)
    with pytest.raises(ControlScriptError, match="'side' is not known here; choose one of fps, tps"):
        perspective_column("side-5", 5)


def test_a_schedule_takes_free_text_and_splits_at_the_last_hyphen():
    stretches = parse_schedule("None-4, a blue-green box appears -4", 8)
    assert [(stretch.value, stretch.latents) for stretch in stretches] == [("None", 4), ("a blue-green box appears", 4)]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("a-4", "ends at latent 4, but the schedule must cover exactly 16"),
        ("a-12,b-8", "ends at latent 20, but"),
        ("a-16,b-4", "ends at latent 16, but"),
        ("a-6,b-10", "ends at latent 6, inside a chunk; end it at a multiple of the chunk's 4"),
        ("-16", "names nothing"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(script, message):
    with pytest.raises(ControlScriptError, match=message):
        parse_schedule(script, 16, chunk_latents=4)


def test_every_control_parses_in_any_case():
    for token in CONTROLS:
        assert parse_actions(f"{token.upper()}-3") == parse_actions(f"{token}-3")


@given(plain, st.one_of(st.just("None"), plain), st.one_of(st.just("None"), plain))
def test_reading_a_caption_inverts_writing_it(scene, character, event):
    caption = StructuredCaption(scene, character, event)
    assert StructuredCaption.from_text(caption.text()) == caption


@pytest.mark.parametrize("text", ["", "a stone hall", "The scene in the video is: a hall", "The event is: it rains."])
def test_a_text_outside_the_template_is_refused(text):
    with pytest.raises(ValueError, match="does not follow the caption template"):
        StructuredCaption.from_text(text)


def test_a_row_survives_the_way_through_a_frame_action():
    action = FrameAction(-1.5, 2.5, -1, 1, FIRST_PERSON, 1)
    assert FrameAction.from_row(action.row()) == action
