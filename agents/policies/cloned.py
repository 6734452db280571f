"""Policies that imitate the players of recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from agents.policies.card import PolicyCard
from agents.policies.convolutions import FEATURES, convolutions
from agents.policies.protocol import check_pictures
from agents.policies.simple import MENU


class CloneNetwork(nn.Module):
    """Pictures uint8 ``[B, H, W, 3]`` to the logits ``[B, 13]`` of the menu's choices."""

    def __init__(self, frame_size: tuple[int, int]) -> None:
        super().__init__()
        self.look, seen = convolutions(3, frame_size)
        self.choose = nn.Sequential(nn.Linear(seen, FEATURES), nn.ReLU(), nn.Linear(FEATURES, len(MENU)))

    def forward(self, pictures: Tensor) -> Tensor:
        return self.choose(self.look(pictures.permute(0, 3, 1, 2).float() / 255))


class Cloned:
    """The most likely choice of a `CloneNetwork`."""

    action_mode = "discrete"

    def __init__(self, network: CloneNetwork, card: PolicyCard, num_envs: int) -> None:
        self.network, self.card, self.num_envs = network.eval(), card, num_envs

    def reset(self, mask: np.ndarray) -> None:
        """Nothing lasts."""

    @torch.no_grad()
    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``."""
        check_pictures("cloning", observations, self.num_envs, self.card.frame_size)
        return self.network(torch.from_numpy(np.ascontiguousarray(observations))).argmax(1).numpy()


def load_cloned(file: Path, card: PolicyCard, num_envs: int) -> Cloned:
    """Read a policy that `wp2 clone` wrote.

    Raises:
        ValueError: for a file that is no such policy.
    """
    network = CloneNetwork(card.frame_size)
    try:
        network.load_state_dict(load_file(file))
    except FileNotFoundError:
        raise ValueError(f"there is no file {file}; clone the policy again") from None
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{file} is no cloned policy ({str(error).splitlines()[0]}); clone it again") from error
    return Cloned(network, card, num_envs)
