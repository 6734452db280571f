"""What the benchmarks' tests share: a tiny world that listens, stores of made-up clips, and a ladder to climb."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from world_model.checkpoint import save_world
from world_model.controls import StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ShardWriter, write_manifest
from world_model.world import World
from wp2env.spaces import DiscreteActions
from wp2env.starts import StartBank


@pytest.fixture(scope="session")
def listening_world() -> World:
    """A tiny world that listens to its controls: what starts at zero in training does not here."""
    world = World.random("tiny")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in world.parameters():
            if not parameter.any():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return world.requires_grad_(False)


@pytest.fixture(scope="session")
def write_store():
    """Writes clips into a new folder, as a store of one shard."""

    def write(folder: Path, clips: Iterable[Clip]) -> Path:
        folder.mkdir()
        writer = ShardWriter(folder / "shard-00000.safetensors")
        for clip in clips:
            writer.add(clip)
        write_manifest(folder, [writer.close()])
        return folder

    return write


class Ladder(VectorEnv):
    """Stands in for a place: every "forward" climbs a rung, and the task is fulfilled, and pays 1, on the last one."""

    def __init__(self, num_envs: int, rungs: int) -> None:
        self.num_envs, self.rungs = num_envs, rungs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_fps": 9}
        self.single_observation_space = spaces.Box(0, 255, (4, 4, 3), np.uint8)
        self.single_action_space = spaces.Discrete(len(DiscreteActions.menu))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.height = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed=None, options=None):
        self.height[options.get("reset_mask", np.ones(self.num_envs, dtype=bool))] = 0
        return self._pictures(), {}

    def step(self, actions):
        self.height += np.asarray(actions) == DiscreteActions.menu.index("forward")
        over = self.height >= self.rungs
        there = np.ones(self.num_envs, dtype=bool)
        infos = {"reward_terms": {"success": over.astype(float), "_success": there}, "_reward_terms": there}
        return self._pictures(), over.astype(float), over, np.zeros_like(over), infos

    def _pictures(self):
        return np.zeros((self.num_envs, 4, 4, 3), dtype=np.uint8)


class Climber:
    """Goes forward with a chance, and else does nothing."""

    action_mode = "discrete"

    def __init__(self, chance: float, num_envs: int, seed: int) -> None:
        self.chance, self.num_envs, self.random = chance, num_envs, np.random.default_rng(seed)

    def reset(self, mask):
        pass

    def act(self, observations):
        forward, idle = map(DiscreteActions.menu.index, ("forward", "idle"))
        return np.where(self.random.random(self.num_envs) < self.chance, forward, idle)


@pytest.fixture(scope="session")
def ladder():
    """Makes a `Ladder`."""
    return Ladder


@pytest.fixture(scope="session")
def climber():
    """Makes a `Climber`."""
    return Climber


@pytest.fixture(scope="session")
def small_world(tmp_path_factory) -> Path:
    """A folder with a tiny world of random weights and a bank of 16 starts beside it."""
    folder = tmp_path_factory.mktemp("small-world")
    save_world(World.random("tiny"), folder)
    pictures = np.zeros((16, 1, 32, 32, 3), dtype=np.uint8)
    StartBank(pictures, (StructuredCaption("hall"),) * 16, np.ones(16, np.uint8)).save(folder / "test.safetensors")
    return folder
