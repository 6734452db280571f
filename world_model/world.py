"""A world: the four networks of one configuration, and the stream that runs them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from world_model.codec import CausalCodec
from world_model.config import PRESETS, MemoryConfig, WorldConfig
from world_model.memory import MemoryCompressor
from world_model.text import ByteEncoder
from world_model.transformer import VelocityTransformer

if TYPE_CHECKING:
    from world_model.rollout import WorldStream


class World(nn.Module):
    """Codec, caption encoder, velocity network and memory compressor of one world.

    ``path`` is the folder that it was loaded from, None for a world with random weights.
    """

    def __init__(self, config: WorldConfig, path: Path | None = None) -> None:
        super().__init__()
        self.config = config
        self.path = path
        self.codec = CausalCodec(config.codec)
        self.text = ByteEncoder(config.text)
        self.transformer = VelocityTransformer(config)
        self.compressor = MemoryCompressor(config)

    @classmethod
    def random(cls, preset: str | WorldConfig, seed: int = 0) -> World:
        """A world with random weights that depend on ``seed`` alone.

        Raises:
            ValueError: when there is no preset of that name.
        """
        if isinstance(preset, str):
            if preset not in PRESETS:
                raise ValueError(f"there is no preset {preset!r}; choose one of {', '.join(PRESETS)}")
            preset = PRESETS[preset]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(preset)

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.config.name

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.transformer.head.weight.device

    def with_memory(self, memory: MemoryConfig) -> World:
        """The same networks, weights shared, with other bounds on what the memory holds.

        Raises:
            ValueError: when ``memory`` compresses differently, which the weights do not fit.
        """
        bounds = {"adjacent_latents", "budget_slots", "max_age"}
        for name, value in vars(self.config.memory).items():
            if name not in bounds and getattr(memory, name) != value:
                raise ValueError(
                    f"memory.{name} is {getattr(memory, name)} and these weights were made for {value}; only "
                    f"{', '.join(sorted(bounds))} can differ"
                )
        world = copy.copy(self)
        world.config = replace(self.config, memory=memory)
        return world

    def stream(self, num_slots: int, *, sampling_steps: int | None = None, temperature: float = 1.0) -> WorldStream:
        """A stream of ``num_slots`` independent rollouts through this world, all in one batch.

        ``sampling_steps`` network evaluations make a chunk (default: the configuration's); ``temperature`` scales
        the noise that a chunk starts from.
        """
        from world_model.rollout import WorldStream

        return WorldStream(self, num_slots, sampling_steps=sampling_steps, temperature=temperature)
