"""Wrappers around the environment."""

from __future__ import annotations

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import wp2env
from wp2env.wrappers import CaptionObservation

pytestmark = pytest.mark.filterwarnings("error")


def test_captions_in_the_observation_pass_gymnasiums_checker(make):
    with pytest.warns(UserWarning, match="is different from the unwrapped version") as warned:  # as a wrapper is
        check_env(CaptionObservation(make()), skip_render_check=True)
    assert len(warned) == 1


def test_the_caption_stands_beside_the_picture(make):
    env = CaptionObservation(make())
    observation, info = env.reset(seed=0, options={"start_index": 0})
    assert {name: observation[name] for name in ("scene", "character", "event")} == info["caption"]
    env.unwrapped.set_event("it rains")
    observation = env.step(env.unwrapped.idle_action())[0]
    assert observation["event"] == "it rains" and observation in env.observation_space


def test_letters_that_the_space_cannot_hold_are_replaced_and_long_texts_cut(make):
    env = CaptionObservation(make(), max_length=8)
    observation, info = env.reset(options={"text_only": True, "caption": {"scene": "ein Gewölbe aus Stein"}})
    assert observation["scene"] == "ein Gew?" and observation in env.observation_space
    assert info["caption"]["scene"] == "ein Gewölbe aus Stein"


def test_the_wrapper_is_written_into_the_spec(folder):
    env = CaptionObservation(gymnasium.make(wp2env.ENV_ID, world=str(folder)), max_length=99)
    twin = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert twin.observation_space == env.observation_space


def test_texts_of_no_length_are_refused(make):
    with pytest.raises(ValueError, match="max_length is 0; texts need at least 1 character"):
        CaptionObservation(make(), max_length=0)
