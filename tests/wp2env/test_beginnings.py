"""Where episodes begin: the bank, pictures and clips of the user, text alone."""

from __future__ import annotations

import numpy as np
import pytest

from world_model.controls import StructuredCaption

pytestmark = pytest.mark.filterwarnings("error")


def test_a_start_of_the_bank_is_seen_as_the_world_encodes_it(make):
    env = make()
    frame, info = env.reset(seed=0, options={"start_index": 2})
    assert info["start_index"] == 2 and info["caption"]["scene"] == "hall 2" and frame in env.observation_space


def test_a_picture_of_the_users_begins_the_episode_at_any_size(make):
    env = make()
    pictures = [np.full((*size, 3), 200, dtype=np.uint8) for size in ((32, 32), (48, 100), (8, 8))]
    frames = [env.reset(seed=0, options={"init_frames": p, "caption": {"scene": "a hall"}})[0] for p in pictures]
    assert np.array_equal(frames[0], frames[1]) and np.array_equal(frames[0], frames[2])
    _, info = env.reset(options={"init_frames": pictures[0], "caption": {"scene": "a hall", "event": "it rains"}})
    assert info["start_index"] == -1
    assert info["caption"] == {"scene": "a hall", "character": "None", "event": "it rains"}


def test_a_clip_of_the_users_begins_the_episode_with_its_newest_whole_chunks(chunked_folder, make, same):
    """A chunk is 16 frames there: of 20 frames the last 17 count."""
    clip = np.random.default_rng(1).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    answers = []
    for frames in (clip, clip[3:], clip[2:]):
        env = make(world=str(chunked_folder))
        answers.append(
            (env.reset(seed=0, options={"init_frames": frames, "caption": {"scene": "x"}}), env.step(env.idle_action()))
        )
    assert same(answers[0], answers[1]) and same(answers[0], answers[2])
    assert env.batch.episodes.stream.steps_taken.tolist() == [5 + 4]


def test_a_world_begins_from_text_alone(make):
    env = make()
    pictures = [
        env.reset(seed=0, options={"text_only": True, "caption": {"scene": scene}})[0] for scene in ("a hall", "a sea")
    ]
    assert not np.array_equal(*pictures)
    assert env.step(env.idle_action())[0] in env.observation_space


def test_a_structured_caption_is_a_caption(make):
    env = make()
    _, info = env.reset(options={"text_only": True, "caption": StructuredCaption("a hall", "a robot")})
    assert info["caption"] == {"scene": "a hall", "character": "a robot", "event": "None"}


def test_a_world_without_a_bank_says_how_to_begin(make, bankless_folder):
    env = make(world=str(bankless_folder))
    with pytest.raises(ValueError, match="this world has no bank of starts; give one with `starts=FILE`, or reset"):
        env.reset()
    assert env.reset(options={"text_only": True, "caption": {"scene": "a hall"}})[0] in env.observation_space


def test_a_bank_from_another_file_replaces_the_worlds_own(make, folder, bankless_folder, same):
    env, twin = make(), make(world=str(bankless_folder), starts=folder / "starts.safetensors")
    assert same(env.reset(seed=0), twin.reset(seed=0))
