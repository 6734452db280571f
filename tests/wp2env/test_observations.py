"""What is seen: frames, clips, rendering."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

pytestmark = pytest.mark.filterwarnings("error")


def test_clips_show_all_frames_of_the_chunk_and_a_still_one_after_the_reset(make, chunked_folder):
    env = make(world=str(chunked_folder), obs_mode="clip")
    clip, _ = env.reset(seed=0)
    assert clip.shape == (16, 32, 32, 3) and (clip == clip[0]).all()
    clip = env.step(env.idle_action())[0]
    assert clip in env.observation_space and not (clip == clip[0]).all()


def test_the_frame_is_the_newest_of_the_clip_and_info_has_the_others_on_request(make, chunked_folder):
    clips, frames = make(world=str(chunked_folder), obs_mode="clip"), make(world=str(chunked_folder), info_frames=True)
    clips.reset(seed=0), frames.reset(seed=0)
    clip = clips.step(clips.idle_action())[0]
    frame, *_, info = frames.step(frames.idle_action())
    assert np.array_equal(clip[-1], frame) and np.array_equal(clip, info["frames"])
    assert "frames" not in clips.step(clips.idle_action())[4]


def test_one_action_per_latent_reaches_the_world(make, chunked_folder):
    env = make(world=str(chunked_folder), action_mode="discrete", per_latent_actions=True)
    held = make(world=str(chunked_folder), action_mode="discrete")
    env.reset(seed=0), held.reset(seed=0)
    assert np.array_equal(env.step(np.array([5, 5, 5, 5]))[0], held.step(5)[0])
    env.reset(seed=0), held.reset(seed=0)
    assert not np.array_equal(env.step(np.array([5, 5, 5, 0]))[0], held.step(5)[0])


def test_what_was_returned_stays_as_it_was(make, actions, play):
    env = make(info_frames=True)
    first, info = env.reset(seed=0)
    kept = first.copy(), info["frames"].copy()
    play(env, actions(env.action_space, 2))
    assert np.array_equal(first, kept[0]) and np.array_equal(info["frames"], kept[1])


def test_latency_is_an_attribute_and_not_in_info(make):
    env = make()
    env.reset(seed=0)
    info = env.step(env.idle_action())[4]
    assert env.latency > 0 and not any("time" in key or "latency" in key for key in info)


def test_rgb_array_is_the_newest_frame(make):
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.step(env.idle_action())[0]
    assert np.array_equal(env.render(), frame)
    env.render()[:] = 0  # a picture given away is no part of the environment
    assert np.array_equal(env.render(), frame)


def test_rgb_array_list_is_every_frame_since_the_last_call_or_reset(make):
    env = make(render_mode="rgb_array_list")
    seen = [env.reset(seed=0)[0], env.step(env.idle_action())[0]]
    assert np.array_equal(env.render(), seen)
    seen = [env.step(env.idle_action())[0] for _ in range(2)]
    assert np.array_equal(env.render(), seen) and env.render() == []
    env.step(env.idle_action())
    env.reset()
    assert len(env.render()) == 1


def test_a_window_opens_follows_the_steps_and_closes(make, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = make(render_mode="human")
    env.reset(seed=0)
    env.step(env.idle_action())
    window = env.batch._window
    assert env.render() is None and not window.closed
    assert env.clone().render_mode is None  # a search with hundreds of clones opens no windows
    env.close()
    assert window.closed


def test_rendering_without_a_mode_warns_and_before_a_reset_is_refused(make):
    env = make()
    with pytest.warns(UserWarning, match=r"render\(\) needs a render mode"):
        assert env.render() is None
    with pytest.raises(ResetNeeded, match="call reset first"):
        make(render_mode="rgb_array").render()


def test_frames_per_second_follow_the_world(make, chunked_folder):
    assert make().metadata["render_fps"] == 9  # 8.75 frames a second, one per step
    assert make(world=str(chunked_folder)).metadata["render_fps"] == 1  # sixteen per step
