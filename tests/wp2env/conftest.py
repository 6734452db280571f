"""Tiny worlds on disk, each with a bank of three starts, and environments in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from world_model.checkpoint import save_world
from world_model.config import TINY, WorldConfig
from world_model.controls import StructuredCaption
from world_model.world import World
from wp2env.env import WorldPlay2Env
from wp2env.starts import BANK_FILE, StartBank
from wp2env.vector_env import WorldPlay2VectorEnv

CHUNKED = replace(TINY, name="chunked", chunk_latents=4, codec=replace(TINY.codec, temporal_factor=4))


def lively(config: WorldConfig, seed: int = 0) -> World:
    """A random world in which actions and captions change the picture: no weight is left at zero."""
    world = World.random(config, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in world.parameters():
            scale = 0.3 if parameter.ndim < 2 else 1.2 / parameter[0].numel() ** 0.5
            parameter.copy_(parameter + torch.randn(parameter.shape, generator=generator) * scale)
    return world.eval().requires_grad_(False)


def start_bank(config: WorldConfig, count: int = 3, frames: int = 1) -> StartBank:
    """Starts of noise; the second one is seen in third person."""
    shape = (count, frames, config.video.height, config.video.width, 3)
    pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    captions = tuple(StructuredCaption(f"hall {place}", f"marine {place}") for place in range(count))
    return StartBank(pictures, captions, np.array([1, 0, 1], dtype=np.uint8)[:count])


def written(world: World, folder: Path) -> Path:
    save_world(world, folder)
    start_bank(world.config).save(folder / BANK_FILE)
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Such small networks only wait for each other on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A world of one latent per chunk and one frame per latent, 32x32."""
    return written(lively(TINY), tmp_path_factory.mktemp("worlds") / "tiny")


@pytest.fixture(scope="session")
def chunked_folder(tmp_path_factory) -> Path:
    """Four latents per chunk, four frames per latent."""
    return written(lively(CHUNKED, seed=5), tmp_path_factory.mktemp("worlds") / "chunked")


@pytest.fixture(scope="session")
def bankless_folder(tmp_path_factory) -> Path:
    """A world without recorded starts."""
    path = tmp_path_factory.mktemp("worlds") / "bankless"
    save_world(lively(TINY), path)
    return path


@pytest.fixture
def make(folder):
    """Makes a single environment without Gymnasium's wrappers; keyword arguments as `WorldPlay2Env`."""
    return lambda **arguments: WorldPlay2Env(**{"world": str(folder), **arguments})


@pytest.fixture
def make_vec(folder):
    """Makes a vector environment; keyword arguments as `WorldPlay2VectorEnv`."""
    return lambda num_envs=2, **arguments: WorldPlay2VectorEnv(num_envs, **{"world": str(folder), **arguments})


@pytest.fixture(scope="session")
def bank() -> StartBank:
    """Four starts of the true game that see the red ball, in pictures of the size of the tiny world's."""
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.task_starts import record_task_starts
    from wp2env.game_starts import bank_of

    return bank_of(list(record_task_starts("walk to the red ball", 4, split="test", seed=5, size=32)))


@pytest.fixture
def game(bank):
    """Makes a single true game."""
    from wp2env.true_game import TrueGameEnv

    made = []

    def make(**arguments):
        made.append(TrueGameEnv(**{"starts": bank, "task": "constant", **arguments}))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture
def games(bank):
    """Makes a vector of true games."""
    from wp2env.true_game import TrueGameVectorEnv

    made = []

    def make(num_envs=2, **arguments):
        made.append(TrueGameVectorEnv(num_envs, **{"starts": bank, "task": "constant", **arguments}))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture
def actions():
    """Draws ``count`` actions of a space, the same ones for the same seed."""

    def draw(space, count, seed=0):
        space.seed(seed)
        return [space.sample() for _ in range(count)]

    return draw


@pytest.fixture
def play():
    """Plays actions and returns what the environment said, step by step."""
    return lambda env, moves: [env.step(move) for move in moves]


@pytest.fixture
def same():
    """Whether two answers of an environment are equal to the last bit, through tuples, dicts and arrays."""

    def equal(a, b) -> bool:
        if isinstance(a, dict):
            return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
        if isinstance(a, (list, tuple)):
            return len(a) == len(b) and all(map(equal, a, b))
        if isinstance(a, np.ndarray) and a.dtype == object:
            return equal(a.tolist(), b.tolist())
        return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)

    return equal
