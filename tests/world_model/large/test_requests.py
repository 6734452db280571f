"""The published control JSON: what is read from it, and what is said of one that does not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from world_model.control_scripts import action_rows
from world_model.large.requests import read_requests

ENTRY = {
    "image_path": "pictures/hall.png",
    "perspective": "tps",
    "action": "w-4,wa+left-4",
    "prompt1": "The scene in the video is: a hall. The character is: a knight.",
    "prompt_door": "The scene in the video is: a hall. The character is: a knight. The event is: a door opens.",
    "prompt_event": "prompt1-4,prompt_door-4",
}


@pytest.fixture
def read(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "hall.png").touch()

    def run(*entries, **options):
        file = tmp_path / "input.json"
        file.write_text(json.dumps(entries))
        return read_requests(file, 4, **options)

    return run


def test_rows_captions_and_names_follow_the_published_rules(read, tmp_path):
    first, second = read(ENTRY, ENTRY | {"perspective": "fps", "output_name": "walk", "comment": 1}, yaw=2.0, pitch=1.0)
    assert (first.name, second.name) == ("0_hall", "walk")
    assert first.image == tmp_path / "pictures" / "hall.png"
    assert first.captions == (ENTRY["prompt1"], ENTRY["prompt_door"])
    np.testing.assert_array_equal(first.rows, action_rows(ENTRY["action"], 0, 2.0, 1.0))
    np.testing.assert_array_equal(second.rows[:, 4], 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"image_path": "none.png"}, "does not exist"),
        ({"image_path": None}, "image_path must be a text"),
        ({"perspective": "third"}, "choose one of tps, fps"),
        ({"perspective": []}, "perspective must be a text"),
        ({"action": "w-4,x-4"}, "action: segment 1 .* 'x' is not a control"),
        ({"action": "w-6", "prompt_event": "prompt1-6"}, "6 latents.* make it 8"),
        ({"prompt_event": "prompt1-3,prompt_door-5"}, "prompt_event: .* inside a chunk"),
        ({"prompt_event": "prompt1-4"}, "cover exactly 8"),
        ({"prompt_event": "prompt2-8"}, "'prompt2' is not known here"),
        ({"prompt1": " "}, "prompt1 must be a text that is not empty"),
        ({"output_name": "../walk"}, "no plain file name"),
        ({"output_name": ".."}, "no plain file name"),
        ({"action": "w-2048", "prompt_event": "prompt1-2048"}, "2048 latents and the model has positions for 1024"),
        ({"output_name": "0_hall"}, "that of an earlier entry"),
    ],
)
def test_what_is_wrong_is_named_with_its_entry(read, change, problem):
    with pytest.raises(ValueError, match=rf"input.json, entry 1: .*{problem}"):
        read(ENTRY, ENTRY | change)


@pytest.mark.parametrize("text", ["[]", "{}", "[1]", "[", '{"image_path": "a"}'])
def test_a_file_of_another_form_is_refused(tmp_path, text):
    (tmp_path / "input.json").write_text(text)
    with pytest.raises(ValueError, match="input.json (is no JSON|must hold an array)"):
        read_requests(tmp_path / "input.json", 4)


def test_an_entry_without_captions_is_refused(read):
    with pytest.raises(ValueError, match="there is no caption"):
        read({key: value for key, value in ENTRY.items() if key not in ("prompt1", "prompt_door")})
