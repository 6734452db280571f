"""States, clones and pickles of the single environment: the same frames again, to the last bit."""

from __future__ import annotations

import pickle

import cloudpickle
import gymnasium
import pytest
from gymnasium.error import ResetNeeded

import wp2env
from world_model.checkpoint import load_world

pytestmark = pytest.mark.filterwarnings("error")


def registered(folder, **arguments):
    return gymnasium.make(wp2env.ENV_ID, world=str(folder), **arguments)


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
