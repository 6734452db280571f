"""The single environment: Gymnasium's contract, determinism, states, captions, starts in use, rendering, errors."""

from __future__ import annotations

import pickle
import subprocess
import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

import wp2env
from world_model.checkpoint import load_world
from world_model.controls import StructuredCaption
from wp2env.keyboard import ARROW_LEFT
from wp2env.spaces import ACTION_MODES
from wp2env.starts import StartBank
from wp2env.tasks import Constant, Exploration, RewardOut

pytestmark = pytest.mark.filterwarnings("error")


def registered(folder, **arguments):
    return gymnasium.make(wp2env.ENV_ID, world=str(folder), **arguments)


# Gymnasium's contract.


@pytest.mark.parametrize("mode", sorted(ACTION_MODES))
def test_gymnasiums_checker_finds_nothing_to_say(folder, mode, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # the checker opens every render mode, the window too
    check_env(registered(folder, action_mode=mode).unwrapped)


def test_gymnasiums_checker_passes_with_clips_and_one_action_per_latent(chunked_folder, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    extras = {"obs_mode": "clip", "per_latent_actions": True, "info_frames": True}
    check_env(registered(chunked_folder, **extras).unwrapped)


@pytest.mark.parametrize("mode", sorted(ACTION_MODES))
def test_the_idle_action_and_the_keys_are_actions_of_the_space(make, mode):
    env = make(action_mode=mode)
    env.reset(seed=0)
    assert env.idle_action() in env.action_space
    assert env.get_keys_to_action()[(ARROW_LEFT,)] in env.action_space


@pytest.mark.parametrize("mode", ["dict", "multidiscrete", "discrete"])
def test_gymnasiums_player_takes_the_keys(folder, mode, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame
    from gymnasium.utils.play import play

    rows = []

    def watch(before, after, action, *answer):
        rows.append(action)
        pygame.event.post(
            pygame.event.Event(pygame.KEYDOWN, key=pygame.K_w) if len(rows) == 1 else pygame.event.Event(pygame.QUIT)
        )

    env = registered(folder, action_mode=mode, render_mode="rgb_array")
    env.reset(seed=0, options={"start_index": 0})
    idle, forward = env.unwrapped.idle_action(), env.unwrapped.get_keys_to_action()[(pygame.K_w,)]
    play(env, noop=idle, seed=0, callback=watch, fps=1000)
    assert all(map(np.array_equal, map(repr, rows), map(repr, (idle, forward))))


def test_the_id_brings_its_package_along(folder):
    assert gymnasium.make("wp2env:WorldPlay2-v0", world=str(folder)).spec.id.endswith("WorldPlay2-v0")


def test_the_idle_action_moves_nothing_and_keeps_the_third_person(make):
    env = make()
    env.reset(seed=0, options={"perspective": 0})
    env.step(env.idle_action())
    assert env.idle_action()["perspective"] == 0 and env.idle_action()["longitudinal"] == 1


def test_an_episode_made_by_gymnasium_is_truncated_after_256_steps_or_as_told(folder):
    assert registered(folder).spec.max_episode_steps == 256
    env = registered(folder, max_episode_steps=3)
    env.reset(seed=0)
    ends = [env.step(env.unwrapped.idle_action())[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_an_environment_made_without_gymnasium_keeps_its_own_limit(make):
    env = make(max_episode_steps=1)
    env.reset(seed=0)
    assert env.step(env.idle_action())[2:4] == (False, True)
    with pytest.raises(ResetNeeded, match="have ended; reset them first"):
        env.step(env.idle_action())
    assert env.reset()[1]["step"] == 0


def test_rewards_and_ends_are_pythons_own_numbers(make):
    """Gymnasium's checker and JSON writers take no NumPy scalars."""
    env = make(task=lambda context: np.float32(0.5))
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.idle_action())
    assert [type(value) for value in (reward, terminated, truncated, info["step"])] == [float, bool, bool, int]


def test_episode_statistics_of_gymnasium_count_the_rewards(folder):
    env = RecordEpisodeStatistics(registered(folder, task=Constant(0.5), max_episode_steps=4))
    env.reset(seed=0)
    info = [env.step(env.unwrapped.idle_action()) for _ in range(4)][-1][-1]
    assert (info["episode"]["r"], info["episode"]["l"]) == (2.0, 4)


def test_the_spec_survives_json_and_makes_the_same_episode(folder, actions, play, same):
    env = registered(folder, action_mode="box", max_episode_steps=5)
    twin = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert twin.spec == env.spec
    moves = actions(env.action_space, 5)
    assert same((env.reset(seed=2), play(env, moves)), (twin.reset(seed=2), play(twin, moves)))


def test_importing_the_environment_only_registers_it():
    code = "import sys, wp2env, gymnasium; print('WorldPlay2-v0' in gymnasium.registry, *sys.modules)"
    known, *modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"torch", "cv2", "pygame", "stable_baselines3", "vizdoom", "diffusers", "transformers", "fastapi"}
    assert known == "True" and not heavy & {name.partition(".")[0] for name in modules}


# Seeds.


def test_equal_seeds_give_equal_episodes_one_after_the_other_too(make, actions, play, same):
    env, twin = make(), make()
    moves = actions(env.action_space, 5)
    for seed in (3, None):  # the second episode draws from the stream that the seed began
        assert same((env.reset(seed=seed), play(env, moves)), (twin.reset(seed=seed), play(twin, moves)))


def test_seeds_choose_starts_and_noise(make):
    env = make()
    episodes = [env.reset(seed=seed)[1]["start_index"] for seed in range(12)]
    assert set(episodes) == {0, 1, 2}
    noise = []
    for seed in (0, 1):
        env.reset(seed=seed, options={"start_index": 0})
        noise.append(env.step(env.idle_action())[0])
    assert not np.array_equal(*noise)


def test_an_unseeded_episode_differs_from_the_one_before(make):
    env = make()
    frames = []
    for seed in (0, None):
        env.reset(seed=seed, options={"start_index": 0})
        frames.append(env.step(env.idle_action())[0])
    assert not np.array_equal(*frames)


def test_a_start_of_the_users_does_not_shift_the_episodes_after_it(make, same):
    env, twin = make(), make()
    env.reset(seed=0)
    twin.reset(seed=0, options={"text_only": True, "caption": {"scene": "a hall"}})
    assert same(env.reset(), twin.reset())


def test_a_generator_set_by_hand_draws_the_episodes(make, same):
    env, twin = make(), make()
    env.np_random, twin.np_random = np.random.default_rng(5), np.random.default_rng(5)
    assert env.np_random_seed == -1 and same(env.reset(), twin.reset())


def test_the_seed_is_remembered_and_the_generator_is_gymnasiums(make):
    env = make()
    env.reset(seed=17)
    assert env.np_random_seed == 17
    env.np_random.random()  # whoever draws from it shifts the next episode's start and noise, as everywhere


def test_temperature_0_leaves_nothing_to_chance(make):
    frames = []
    for seed in (0, 1):
        env = make(temperature=0)
        env.reset(seed=seed, options={"start_index": 0})
        frames.append(env.step(env.idle_action())[0])
    assert np.array_equal(*frames)


def test_sampling_steps_change_the_picture(make):
    frames = []
    for steps in (1, 3):
        env = make(sampling_steps=steps)
        env.reset(seed=0)
        frames.append(env.step(env.idle_action())[0])
    assert not np.array_equal(*frames)


def test_actions_change_the_picture(make):
    env = make(action_mode="discrete")
    frames = []
    for action in (0, 5):
        env.reset(seed=0)
        frames.append(env.step(action)[0])
    assert not np.array_equal(*frames)


# States, clones and pickles.


def test_set_state_brings_back_frames_rewards_captions_and_infos_bit_for_bit(make, actions, play, same):
    env = make(action_mode="hybrid")
    env.reset(seed=0)
    moves = actions(env.action_space, 9)
    play(env, moves[:3])
    state = env.get_state()
    future = play(env, moves[3:])
    for _ in range(2):
        env.set_caption(scene="elsewhere")
        env.reset(seed=99)
        env.set_state(state)
        assert same(future, play(env, moves[3:]))


def test_a_state_brings_back_the_stream_of_episodes(make, same):
    env = make()
    env.reset(seed=0)
    state = env.get_state()
    following = env.reset()
    env.set_state(state)
    assert same(following, env.reset())


def test_a_state_goes_into_another_environment_of_the_same_kind(make, actions, play, same):
    env, other = make(), make()
    env.reset(seed=0)
    moves = actions(env.action_space, 3)
    state = env.get_state()
    other.set_state(state)
    assert same(play(env, moves), play(other, moves))


def test_a_state_survives_pickling(make, actions, play, same):
    env = make()
    env.reset(seed=0)
    moves = actions(env.action_space, 3)
    state = pickle.loads(pickle.dumps(env.get_state()))
    future = play(env, moves)
    env.set_state(state)
    assert same(future, play(env, moves))


def test_a_clone_goes_its_own_way_on_the_same_network(make, actions, play, same):
    env, undisturbed = make(), make()
    for each in (env, undisturbed):
        each.reset(seed=0)
    moves = actions(env.action_space, 6)
    play(env, moves[:2]), play(undisturbed, moves[:2])
    twin = env.clone()
    assert twin.batch.episodes.handle.get() is env.batch.episodes.handle.get()
    twin.set_event("it rains")
    play(twin, moves[::-1])
    assert same(play(env, moves[2:]), play(undisturbed, moves[2:]))


def test_a_clone_repeats_what_its_origin_does(make, actions, play, same):
    env = make()
    env.reset(seed=0)
    moves = actions(env.action_space, 4)
    play(env, moves[:2])
    twin = env.clone()
    assert same((play(env, moves[2:]), env.reset()), (play(twin, moves[2:]), twin.reset()))


def test_a_clone_keeps_a_world_object_that_differs_from_its_folder(make, folder):
    world = load_world(folder)  # has a folder, but whoever holds the object may have trained it further
    env = make(world=world)
    env.reset(seed=0)
    assert env.clone().batch.episodes.handle.get() is world


def test_a_pickled_environment_goes_on_and_holds_no_weights(make, folder, actions, play, same):
    env = make(action_mode="hybrid")
    env.reset(seed=0)
    moves = actions(env.action_space, 6)
    play(env, moves[:3])
    packed = pickle.dumps(env)
    weights = [value.numpy().tobytes() for value in load_world(folder).parameters() if value.numel() > 16]
    assert len(weights) > 50 and not any(weight in packed for weight in weights)
    twin = pickle.loads(packed)
    assert same(play(env, moves[3:]), play(twin, moves[3:]))


def test_a_wrapped_environment_with_a_function_as_task_travels_to_another_process(folder, same):
    env = registered(folder, task=lambda context: 0.25)
    twin = pickle.loads(cloudpickle.dumps(env))
    assert same(env.reset(seed=0), twin.reset(seed=0))
    assert twin.step(twin.unwrapped.idle_action())[1] == 0.25


def test_two_environments_of_one_world_share_the_network(make):
    assert make().batch.episodes.handle.get() is make().batch.episodes.handle.get()


def test_closing_twice_is_fine_and_a_reset_begins_again(make, same):
    env = make()
    first = env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(ResetNeeded):
        env.step(env.idle_action())
    assert same(first, env.reset(seed=0))
    env.close()
    assert env.batch.episodes._stream is None


# Captions and events.


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


# Where episodes begin.


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


# What is seen.


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


# Rewards.


def test_exploration_pays_by_default_and_tells_its_terms(make, actions, play):
    env = make()
    env.reset(seed=0)
    answers = play(env, actions(env.action_space, 5))
    assert all(answer[1] == answer[4]["reward_terms"]["novelty"] >= 0 for answer in answers)
    assert sum(answer[1] for answer in answers) > 0 and answers[0][4]["reward_source"] == "exploration"


def test_a_task_that_terminates_ends_the_episode(make):
    def one_step(context):
        return RewardOut(np.ones(1), context.steps >= 1, confidence=np.full(1, 0.5))

    env = make(task=one_step)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.idle_action())
    assert (reward, terminated, truncated) == (1.0, True, False) and info["reward_confidence"] == 0.5
    with pytest.raises(ResetNeeded, match="have ended"):
        env.step(env.idle_action())


# Bad input: one sentence, and the episode goes on as if nothing had been said.

HALL = {"scene": "a hall"}


def options(**values):
    return lambda env: env.reset(options=values)


BAD_CALLS = {
    "unknown option": (options(level=3), "reset has no option 'level'; it knows caption, init_frames"),
    "unknown caption field": (options(caption={"mood": "x"}), "a caption has no field 'mood'; it has scene"),
    "empty caption": (options(caption={"scene": " "}), "the caption's scene is ' '; give a text, 'None' for nothing"),
    "caption that is no dict": (options(caption="a hall"), "the caption is 'a hall'; give a dict with scene"),
    "caption object of nonsense": (options(caption=StructuredCaption(5)), "the caption's scene is 5; give a text"),
    "float picture": (options(init_frames=np.zeros((32, 32, 3)), caption=HALL), "init_frames are float64 .* uint8"),
    "grey picture": (options(init_frames=np.zeros((32, 32), np.uint8), caption=HALL), r"uint8 \[32, 32\]; give an RGB"),
    "RGBA picture": (options(init_frames=np.zeros((8, 8, 4), np.uint8), caption=HALL), r"uint8 \[8, 8, 4\]"),
    "no frames": (options(init_frames=np.zeros((0, 8, 8, 3), np.uint8), caption=HALL), r"uint8 \[0, 8, 8, 3\]"),
    "picture without a scene": (options(init_frames=np.zeros((8, 8, 3), np.uint8)), "has no caption yet; add"),
    "text alone without a text": (options(text_only=True), "has no caption yet; add"),
    "text_only of nonsense": (options(text_only="yes", caption=HALL), "text_only is 'yes'; give True or False"),
    "two starts at once": (options(text_only=True, start_index=0, caption=HALL), "exclude each other; give one"),
    "start beyond the bank": (options(start_index=3), "start_index is 3; the bank holds 3 starts, numbered from 0"),
    "start of nonsense": (options(start_index="first"), "start_index is 'first'; give a whole number"),
    "perspective 2": (options(perspective=2), r"perspective is 2; give 0 \(third person\) or 1 \(first\)"),
    "perspective array": (options(perspective=np.array([0, 1])), r"perspective is array\(\[0, 1\]\); give 0"),
    "negative seed": (lambda env: env.reset(seed=-1), "a seed is -1; give whole numbers from 0 up"),
    "float seed": (lambda env: env.reset(seed=1.5), "a seed is 1.5; give whole numbers from 0 up"),
    "action of another mode": (lambda env: env.step(np.zeros(6)), "the action is a ndarray; give a dict of camera"),
    "action outside": (lambda env: env.step({**env.idle_action(), "jump": 2}), "jump is 2 in slot 0; give 0 to 1"),
    "empty event": (lambda env: env.set_event(""), "the caption's event is ''; give a text, 'None' for nothing"),
    "scene of nonsense": (lambda env: env.set_caption(scene=5), "the caption's scene is 5; give a text"),
    "no state": (lambda env: env.set_state({}), "the state is a dict; give what get_state returned"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_one_sentence_and_the_episode_goes_on(make, actions, play, same, name):
    call, message = BAD_CALLS[name]
    env, undisturbed = make(), make()
    env.reset(seed=0), undisturbed.reset(seed=0)
    moves = actions(env.action_space, 4)
    play(env, moves[:2]), play(undisturbed, moves[:2])
    with pytest.raises(ValueError, match=message) as raised:
        call(env)
    assert "\n" not in str(raised.value)
    assert same((play(env, moves[2:]), env.reset()), (play(undisturbed, moves[2:]), undisturbed.reset()))


def test_a_state_of_another_kind_of_environment_changes_nothing(make, chunked_folder, actions, play, same):
    env, undisturbed = make(), make()
    env.reset(seed=0), undisturbed.reset(seed=0)
    other_task, other_world = make(task="constant"), make(world=str(chunked_folder))
    other_task.reset(seed=0), other_world.reset(seed=0)
    with pytest.raises(ValueError, match="the task 'constant 0', the environment has 'tiny' and 'exploration'"):
        env.set_state(other_task.get_state())
    with pytest.raises(ValueError, match=r"the state is of \[1, 16, 32, 32, 3\]"):
        env.set_state(other_world.get_state())
    moves = actions(env.action_space, 2)
    assert same(play(env, moves), play(undisturbed, moves))


@pytest.mark.parametrize("call", ["step", "render", "set_event", "idle_action"])
def test_nothing_happens_before_the_first_reset(make, call):
    env = make(render_mode="rgb_array")
    calls = {
        "step": lambda: env.step(env.action_space.sample()),
        "render": env.render,
        "set_event": lambda: env.set_event("it rains"),
        "idle_action": lambda: env.caption,
    }
    with pytest.raises(ResetNeeded, match="the episode has not begun; call reset first"):
        calls[call]()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"world": "nowhere"}, FileNotFoundError, "there is no world 'nowhere': .* the bundled worlds are"),
        ({"world": 5}, ValueError, "the world is 5; name a bundled one, give a folder, or a world object"),
        ({"device": "cuda:99"}, ValueError, "the device 'cuda:99' is not available here; choose one of cpu"),
        ({"device": "abacus"}, ValueError, "the device 'abacus' is not available here"),
        ({"task": "win"}, ValueError, "the task 'win' is not known; name one of explore, constant"),
        ({"task": Exploration}, ValueError, "the task .*Exploration.* is not known"),
        ({"action_mode": "joystick"}, ValueError, "action_mode is 'joystick'; choose one of dict"),
        ({"obs_mode": "latent"}, ValueError, "obs_mode is 'latent'; choose one of frame, clip"),
        ({"render_mode": "ansi"}, ValueError, "render_mode is 'ansi'; choose one of human, rgb_array"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps is 0; give at least 1, or -1 for no limit"),
        ({"sampling_steps": 0}, ValueError, "sampling_steps is 0; a chunk needs at least 1"),
        ({"temperature": -1}, ValueError, "temperature is -1; it scales noise and must be 0 or more"),
        ({"starts": "nowhere.safetensors"}, FileNotFoundError, "there is no file 'nowhere.safetensors'"),
        ({"yaw_bins": 2}, ValueError, "yaw_bins is 2; give an odd number"),
    ],
)
def test_a_bad_argument_is_refused_in_one_sentence(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)


def test_a_world_without_weights_says_so(make, tmp_path, folder):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(FileNotFoundError, match="has no world.safetensors; copy the weights there"):
        make(world=str(tmp_path))


def test_a_bank_of_another_size_is_refused(make, tmp_path, folder):
    bank = StartBank(np.zeros((1, 1, 16, 16, 3), np.uint8), (StructuredCaption("x"),), np.ones(1, np.uint8))
    with pytest.raises(ValueError, match=r"the bank of starts holds pictures \[16, 16, 3\] and this world draws"):
        make(starts=bank)
