"""Policies that Stable-Baselines3 trained."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from agents.policies.card import PolicyCard
from agents.policies.protocol import check_pictures

CLASSES = {
    "ppo": ("stable_baselines3", "PPO"),
    "a2c": ("stable_baselines3", "A2C"),
    "dqn": ("stable_baselines3", "DQN"),
    "recurrent-ppo": ("sb3_contrib", "RecurrentPPO"),
}


class Trained:
    """A model of Stable-Baselines3; it takes its most likely action.

    Shows the model the newest ``frame_stack`` pictures of the episode, missing ones black, as `VecFrameStack` does
    while training, and keeps the state of a recurrent one.
    """

    def __init__(self, model: Any, card: PolicyCard, num_envs: int) -> None:
        self.model, self.card, self.num_envs = model, card, num_envs
        self.action_mode = card.action_mode
        self.pictures = np.zeros((num_envs, *card.frame_size, 3 * card.frame_stack), dtype=np.uint8)
        self.state: Any = None
        self.begins = np.ones(num_envs, dtype=bool)

    def reset(self, mask: np.ndarray) -> None:
        """Forget the slots' pictures and recurrent state."""
        self.pictures[mask] = 0
        self.begins |= mask

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``, or ``[B, 6]`` in the modes "multidiscrete" and "box"."""
        check_pictures(
            f"{self.card.algorithm} for {self.card.task!r}", observations, self.num_envs, self.card.frame_size
        )
        self.pictures = np.concatenate([self.pictures[..., 3:], observations], axis=-1)
        actions, self.state = self.model.predict(
            self.pictures, state=self.state, episode_start=self.begins, deterministic=True
        )
        self.begins = np.zeros(self.num_envs, dtype=bool)
        return actions


def algorithm_class(name: str) -> Any:
    """The class of an algorithm's name.

    Raises:
        ImportError: when the package that has it is not installed.
    """
    module, title = CLASSES[name]
    return getattr(importlib.import_module(module), title)


def load_trained(file: Path, card: PolicyCard, num_envs: int) -> Trained:
    """Read a policy that `wp2 train-agent` wrote; like all zips of Stable-Baselines3 it may run code, so read only
    those that you trust.

    Raises:
        ValueError: for a file that is no such policy, or not the one that its card tells of.
        ImportError: when the package of its algorithm is not installed.
    """
    kind = algorithm_class(card.algorithm)
    try:
        model = kind.load(file, device="cpu")
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}; train the policy again") from None
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, AssertionError, EOFError) as error:
        raise ValueError(f"{file} is no policy of {card.algorithm} ({error}); train it again") from error
    channels = 3 * card.frame_stack
    if sorted(model.observation_space.shape) != sorted((*card.frame_size, channels)):
        raise ValueError(
            f"{file} takes pictures {list(model.observation_space.shape)} and its card tells of "
            f"{[*card.frame_size, channels]}; train it again"
        )
    return Trained(model, card, num_envs)
