"""A tiny world of 64x64 pixels (the convolutions of stable-baselines3 need at least 36x36), and hand-made places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from world_model.checkpoint import save_world
from world_model.config import TINY, VideoConfig
from world_model.controls import StructuredCaption
from world_model.world import World
from wp2env.starts import BANK_FILE, StartBank


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Such small networks only wait for each other on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A world with random weights and two starts of noise."""
    config = replace(
        TINY, name="tiny64", video=VideoConfig(height=64, width=64), transformer=replace(TINY.transformer, patch=2)
    )
    path = tmp_path_factory.mktemp("worlds") / config.name
    save_world(World.random(config, seed=0), path)
    pictures = np.random.default_rng(0).integers(0, 256, (2, 1, 64, 64, 3), dtype=np.uint8)
    captions = (StructuredCaption("hall 0", "marine 0"), StructuredCaption("hall 1", "marine 1"))
    StartBank(pictures, captions, np.ones(2, np.uint8)).save(path / BANK_FILE)
    return path


class Corridor(VectorEnv):
    """Episodes of known length in a place that is drawn by hand.

    Start i takes ``i % 5 + 1`` steps, each pays ``i``, and the last one succeeds where i is even. Pictures are filled
    with i, and their first pixel counts the steps. With SAME_STEP every slot goes through the starts in their order.
    """

    def __init__(self, num_envs: int, starts: int = 40, mode: AutoresetMode = AutoresetMode.DISABLED) -> None:
        self.num_envs, self.starts, self.render_mode = num_envs, starts, None
        self.metadata = {"autoreset_mode": mode, "render_fps": 9}
        self.single_observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.single_action_space = spaces.Discrete(13)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.place, self.steps = np.zeros((2, num_envs), dtype=np.int64)
        self.begun: list[tuple[int, int]] = []  # start and seed of every episode

    def reset(self, *, seed=None, options=None):
        options = options or {}
        mask = options.get("reset_mask", np.ones(self.num_envs, dtype=bool))
        for slot in np.flatnonzero(mask):
            places = np.broadcast_to(options.get("start_index", np.arange(self.num_envs)), (self.num_envs,))
            self.place[slot], self.steps[slot] = places[slot], 0
            self.begun.append((int(self.place[slot]), None if seed is None else seed[slot]))
        return self._pictures(), {}

    def step(self, actions):
        assert not (self.steps > self.place % 5).any(), "an ended slot was stepped"
        self.steps += 1
        over = self.steps > self.place % 5
        success = (over & (self.place % 2 == 0)).astype(float)
        there = np.ones(self.num_envs, dtype=bool)
        infos = {"reward_terms": {"success": success, "_success": there}, "_reward_terms": there}
        rewards = self.place.astype(float)
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and over.any():
            last = np.empty(self.num_envs, dtype=object)
            last[:] = list(self._pictures())
            infos |= {"final_obs": last, "_final_obs": over, "final_info": {}, "_final_info": over}
            self.place[over], self.steps[over] = (self.place[over] + 1) % self.starts, 0
        return self._pictures(), rewards, over, np.zeros_like(over), infos

    def _pictures(self):
        pictures = np.broadcast_to(self.place[:, None, None, None], (self.num_envs, 64, 64, 3)).astype(np.uint8)
        pictures[:, 0, 0] = self.steps[:, None]
        return pictures


@pytest.fixture(scope="session")
def corridor():
    """Makes a `Corridor`."""
    return Corridor


def room(centre: float = 32.0, height: float = 16.0, wall=(90, 90, 90), ball=(230, 0, 0), floor=(60, 120, 60)):
    """A picture uint8 ``[64, 64, 3]`` of a wall, a floor, and a ball on it as the game draws one."""
    frame = np.empty((64, 64, 3), dtype=np.uint8)
    frame[:32], frame[32:] = wall, floor
    if height:
        y, x = np.ogrid[:64, :64]
        middle, wide = 32 + 0.82 * height - height / 2, height / 1.15
        frame[((y + 0.5 - middle) / height) ** 2 + ((x + 0.5 - centre) / wide) ** 2 <= 0.25] = ball
    return frame


@pytest.fixture(scope="session")
def picture():
    """Draws a `room`."""
    return room
