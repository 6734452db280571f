"""Worlds of this process: loaded once, shared, and light to pickle."""

from __future__ import annotations

import pickle

import pytest

from world_model.checkpoint import load_world, save_world
from world_model.config import TINY
from world_model.world import World
from wp2env.loading import WorldHandle


def test_a_world_is_loaded_when_it_is_needed_and_once_per_process(folder):
    handle = WorldHandle(str(folder), "cpu")
    assert handle._world is None
    assert handle.get() is WorldHandle(folder, "cpu").get() is not None
    assert handle.folder == folder


def test_a_world_saved_again_is_loaded_again(tmp_path):
    save_world(World.random(TINY, 0), tmp_path)
    first = WorldHandle(str(tmp_path), "cpu").get()
    save_world(World.random(TINY, 1), tmp_path)
    assert WorldHandle(str(tmp_path), "cpu").get() is not first


def test_a_handle_is_pickled_as_its_folder_and_finds_the_same_world(folder):
    handle = WorldHandle(load_world(folder), "cpu")
    packed = pickle.dumps(handle)
    assert len(packed) < 1000
    assert pickle.loads(packed).folder == folder


def test_a_world_that_was_never_saved_travels_with_its_weights():
    world = World.random(TINY, 0)
    handle = WorldHandle(world, "cpu")
    assert handle.folder is None and handle.get() is world
    twin = pickle.loads(pickle.dumps(handle)).get()
    assert (twin.transformer.head.weight == world.transformer.head.weight).all()


def test_a_handle_asks_for_its_world_only_when_used():
    handle = WorldHandle("nowhere", "cpu")
    with pytest.raises(FileNotFoundError, match="there is no world 'nowhere'"):
        handle.get()


@pytest.mark.parametrize("world", [None, 5, [1]])
def test_something_that_is_no_world_is_refused(world):
    with pytest.raises(ValueError, match="name a bundled one, give a folder, or a world object"):
        WorldHandle(world, "cpu")
