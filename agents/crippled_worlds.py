"""Worlds that lack what makes a world: controls for what is measured of policies in the whole one.

An agent that learns in one of them, or a ranking of policies that is found there, shows what is owed to the starts,
to the reward heads or to chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorActionWrapper, VectorEnv
from torch import Tensor

from agents.policies.simple import slot_generators
from world_model.world import World
from wp2env.options import read_seeds

APART = 1  # sets these generators apart from the environment's, which have the same seeds


class StillWorld:
    """A world whose picture stays what it was at the start; its reward heads judge it as ever."""

    def __init__(self, world: Any) -> None:
        self.world, self.config, self.codec, self.name = world, world.config, world.codec, world.name
        self.path, self.device = world.path, world.device

    def stream(self, num_slots: int, sampling_steps: int | None = None, temperature: float = 1.0) -> StillStream:
        """A stream in which nothing happens."""
        return StillStream(self.world.stream(num_slots, sampling_steps=sampling_steps, temperature=temperature))


class StillStream:
    """The part of `world_model.rollout.WorldStream` that an environment steps, of a world that stands still."""

    def __init__(self, stream: Any) -> None:
        self.inner, self.config, self.num_slots = stream, stream.config, stream.num_slots
        self.latents_per_chunk, self.frames_per_latent = stream.latents_per_chunk, stream.frames_per_latent
        self.frame_shape = stream.frame_shape
        self._frames = torch.zeros((self.num_slots, *self.frame_shape), dtype=torch.uint8)

    @property
    def captions(self) -> list[Any]:
        """The slots' captions."""
        return self.inner.captions

    @property
    def latents(self) -> Tensor:
        """The latents of the start, ``[B, n, C, h, w]``."""
        return self.inner.latents

    def reset(
        self,
        slots: Sequence[int],
        starts: Sequence[Any],
        captions: Sequence[Any],
        seeds: Sequence[int],
        actions: Sequence[Any] | None = None,
    ) -> Tensor:
        """Start the given slots anew: their newest frames, uint8 ``[len(slots), H, W, 3]``."""
        frames = self.inner.reset(slots, starts, captions, seeds, actions=actions).cpu()
        self._frames[list(slots)] = frames
        return frames

    def step(self, actions: np.ndarray) -> Tensor:
        """The same frames again, uint8 ``[B, n * r, H, W, 3]``, whatever the actions."""
        length = self.latents_per_chunk * self.frames_per_latent
        return self._frames[:, None].expand(-1, length, -1, -1, -1)

    def set_caption(self, slots: Sequence[int], **fields: str) -> None:
        """Exchange caption fields, which changes no picture."""
        self.inner.set_caption(slots, **fields)


def untrained(world: World, seed: int = 0) -> World:
    """The world with random weights, in the same dtype; its codec, its text encoder and its reward heads stay."""
    other = World.random(world.config, seed)
    other.path = world.path
    other.codec.load_state_dict(world.codec.state_dict())
    other.text.load_state_dict(world.text.state_dict())
    dtype = next(world.transformer.parameters()).dtype
    for network in (other.transformer, other.compressor, other.codec):
        network.to(dtype)
    return other.to(world.device).eval().requires_grad_(False)


class ShuffledActions(VectorActionWrapper):
    """An environment in which every slot's choice of the menu is exchanged by a permutation drawn anew in every step.

    Nothing that a policy does has a meaning, and all of them do the same on average. Exchanging the slots' choices
    among each other would not suffice: how often a policy walks would still count.

    A slot that is reset with a seed draws the same permutations again.

    Raises:
        ValueError: for an environment whose actions are no choices of a menu.
    """

    def __init__(self, env: VectorEnv, seed: int = 0) -> None:
        super().__init__(env)
        if not isinstance(env.single_action_space, spaces.Discrete):
            raise ValueError(f"actions of {env.single_action_space} cannot be shuffled; make it 'discrete'")
        self.generators = slot_generators(env.num_envs, seed)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As the environment's."""
        seeds = read_seeds(seed, self.num_envs)
        for slot, own in seeds.items():
            if own is not None:
                self.generators[slot] = np.random.default_rng([own, APART])
        return self.env.reset(seed=seed, options=options)

    def actions(self, actions: np.ndarray) -> np.ndarray:
        """The choices ``[B]`` that take the place of the given ones."""
        count = int(self.env.single_action_space.n)
        exchanged = [
            generator.permutation(count)[action] for generator, action in zip(self.generators, actions, strict=True)
        ]
        return np.array(exchanged, dtype=np.int64)
