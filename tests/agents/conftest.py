"""A tiny world of 64x64 pixels: the convolutions of stable-baselines3 need at least 36x36."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

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
