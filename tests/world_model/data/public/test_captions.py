"""Captions in the paper's three fields, and what is refused."""

from __future__ import annotations

import json

import pytest

from world_model.controls import StructuredCaption
from world_model.data.public import spatialvid
from world_model.data.public.captions import always, read_captions, sentence


def test_one_object_and_a_list(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"scene": " A red  room. ", "character": "none"}))
    assert read_captions(path) == ((0.0, StructuredCaption("A red room")),)
    later = [{"scene": "a room", "character": "a cat"}, {"start": 2, "event": "a door opens"}, {"start": 3.5}]
    path.write_text(json.dumps(later))
    assert read_captions(path) == (
        (0.0, StructuredCaption("a room", "a cat")),
        (2.0, StructuredCaption("a room", "a cat", "a door opens")),
        (3.5, StructuredCaption("a room", "a cat")),
    )


def test_captions_fit_the_published_template():
    ((_, caption),) = always(sentence(["A street.", "Rome", None, "unknown"]), "x")
    assert caption.text() == "The scene in the video is: A street, Rome."
    assert StructuredCaption.from_text(caption.text()) == caption


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no caption"),
        ('{"event": "rain"}', "must describe the scene"),
        ('{"scene": "a", "mood": "b"}', "is an object with scene, character, event and start"),
        ('["a"]', "is an object"),
        ('{"scene": {"a": 1}}', "the scene of a caption is a text, not {'a': 1}"),
        ('[{"scene": "a"}, {"start": 0, "event": "b"}]', "ascend from 0, not 0"),
        ('[{"scene": "a", "start": 1}]', "ascend from 0, not 1"),
        ('[{"scene": "a"}, {"start": "soon"}]', "not 'soon'"),
        ('[{"scene": "a"}, {"start": true}]', "not True"),
        ('[{"scene": "a"}, {"start": NaN}]', "is not JSON \\(NaN is no number\\)"),
        ('[{"scene": "a"}, {"start": 1e999}]', "1e999 is no number"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_what_is_no_caption_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=message) as told:
        read_captions(tmp_path / "a.json")
    assert str(tmp_path / "a.json") in str(told.value)


def test_a_clip_without_words_is_refused(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        read_captions(tmp_path / "none.json")
    (tmp_path / "caption.json").write_text('{"SceneSummary": "unknown"}')
    with pytest.raises(ValueError, match="says nothing about the scene"):
        spatialvid.read_captions(tmp_path / "caption.json")
