"""Policies that Stable-Baselines3 trained."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from agents.policies.card import PolicyCard
from agents.policies.protocol import check_pictures
from agents.policies.simple import slot_generators

CLASSES = {
    "ppo": ("stable_baselines3", "PPO"),
    "a2c": ("stable_baselines3", "A2C"),
    "dqn": ("stable_baselines3", "DQN"),
    "recurrent-ppo": ("sb3_contrib", "RecurrentPPO"),
}


class Trained:
    """A model of Stable-Baselines3; it draws its actions from a generator per slot, or takes the best if it is a DQN.

    Shows the model the newest ``frame_stack`` pictures of the episode, missing ones black, as `VecFrameStack` does
    while training, and keeps the state of a recurrent one.
    """

    def __init__(self, model: Any, card: PolicyCard, num_envs: int, seed: int) -> None:
        self.model, self.card, self.num_envs = model, card, num_envs
        self.action_mode = card.action_mode
        self.generators = slot_generators(num_envs, seed)
        self.pictures = np.zeros((num_envs, *card.frame_size, 3 * card.frame_stack), dtype=np.uint8)
        self.begins = np.ones(num_envs, dtype=bool)
        self.state: tuple[Tensor, Tensor] | None = None
        if card.algorithm == "recurrent-ppo":
            layers, _, width = model.policy.lstm_hidden_state_shape
            self.state = torch.zeros(layers, num_envs, width), torch.zeros(layers, num_envs, width)

    def reset(self, mask: np.ndarray) -> None:
        """Forget the slots' pictures and recurrent state; the generators go on."""
        self.pictures[mask] = 0
        self.begins |= mask

    @torch.no_grad()
    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``, or ``[B, 6]`` in the modes "multidiscrete" and "box"."""
        name = f"{self.card.algorithm} for {self.card.task!r}"
        check_pictures(name, observations, self.num_envs, self.card.frame_size)
        self.pictures = np.concatenate([self.pictures[..., 3:], observations], axis=-1)
        if self.card.algorithm == "dqn":
            actions, _ = self.model.predict(self.pictures, deterministic=True)
        else:
            actions = draw(self._distribution(), self.generators)
        self.begins = np.zeros(self.num_envs, dtype=bool)
        return actions

    def _distribution(self) -> Any:
        policy = self.model.policy
        policy.set_training_mode(False)
        pictures, _ = policy.obs_to_tensor(self.pictures)
        if self.state is None:
            return policy.get_distribution(pictures)
        begins = torch.from_numpy(self.begins.astype(np.float32))
        distribution, self.state = policy.get_distribution(pictures, self.state, begins)
        return distribution


def draw(distribution: Any, generators: Sequence[np.random.Generator]) -> np.ndarray:
    """Actions from a distribution of Stable-Baselines3 over ``B`` slots, each drawn from its own generator."""
    inner = distribution.distribution
    if isinstance(inner, Normal):
        noise = np.stack([generator.standard_normal(inner.mean.shape[1]) for generator in generators])
        return np.clip(inner.mean.numpy() + inner.stddev.numpy() * noise, -1, 1).astype(np.float32)
    if isinstance(inner, Categorical):
        return _choose(inner, generators)
    return np.stack([_choose(digit, generators) for digit in inner], axis=-1)


def _choose(categories: Categorical, generators: Sequence[np.random.Generator]) -> np.ndarray:
    """The largest of the logits with Gumbel noise, which is a draw from their categories."""
    logits = categories.logits.numpy()
    return (logits + np.stack([generator.gumbel(size=logits.shape[1]) for generator in generators])).argmax(1)


def algorithm_class(name: str) -> Any:
    """The class of an algorithm's name.

    Raises:
        ImportError: when the package that has it is not installed.
    """
    module, title = CLASSES[name]
    return getattr(importlib.import_module(module), title)


def load_model(file: Path, card: PolicyCard, env: Any = None) -> Any:
    """The model of Stable-Baselines3 in a file, to learn on in ``env`` if one is given.

    Like all its files it may run code: read only those that you trust.

    Raises:
        ValueError: for a file that is no such model, or not the one that its card tells of.
        ImportError: when the package of its algorithm is not installed.
    """
    kind = algorithm_class(card.algorithm)
    try:
        model = kind.load(file, env=env, device="cpu")
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}; train the policy again") from None
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, AssertionError, EOFError) as error:
        raise ValueError(f"{file} is no policy of {card.algorithm} ({error}); delete it or train it again") from error
    channels = 3 * card.frame_stack
    if sorted(model.observation_space.shape) != sorted((*card.frame_size, channels)):
        raise ValueError(
            f"{file} takes pictures {list(model.observation_space.shape)} and its card tells of "
            f"{[*card.frame_size, channels]}; train it again"
        )
    return model
