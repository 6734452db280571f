"""Policies that are wrong on purpose, for rankings: a good evaluation tells them from the good ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agents.policies.protocol import Policy
from agents.policies.scripted import Scripted
from agents.policies.simple import CHOICE, MENU, Fixed, slot_generators

MIRROR = {
    "left": "right",
    "turn left": "turn right",
    "forward and turn left": "forward and turn right",
}
REVERSE = {"forward": "back", "forward and turn left": "back", "forward and turn right": "back"}
NOISE = 0.5  # share of random choices of "noisy", unless one is given
KINDS = ("mirrored", "backwards", "spin", "noisy", "noisy:SHARE")


class Exchanged:
    """Another policy whose choices are exchanged for others."""

    action_mode = "discrete"

    def __init__(self, policy: Policy, exchange: Mapping[str, str]) -> None:
        self.policy = policy
        self.table = np.array([CHOICE[exchange.get(name, name)] for name in MENU], dtype=np.int64)

    def reset(self, mask: np.ndarray) -> None:
        """Reset the other policy."""
        self.policy.reset(mask)

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``."""
        return self.table[self.policy.act(observations)]


class Noisy:
    """Another policy of which a share of choices is random, from a generator per slot."""

    action_mode = "discrete"

    def __init__(self, policy: Policy, share: float, num_envs: int, seed: int) -> None:
        self.policy, self.share = policy, share
        self.generators = slot_generators(num_envs, seed)

    def reset(self, mask: np.ndarray) -> None:
        """Reset the other policy; the generators go on."""
        self.policy.reset(mask)

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``."""
        choices = self.policy.act(observations).copy()
        for slot, generator in enumerate(self.generators):
            random, choice = generator.random() < self.share, generator.integers(len(MENU))
            if random:
                choices[slot] = choice
        return choices


def broken(kind: str, num_envs: int, seed: int) -> Policy:
    """A wrong policy by name; see `KINDS`.

    Raises:
        ValueError: for an unknown kind, or a share outside 0 to 1.
    """
    if kind == "mirrored":
        return Exchanged(Scripted(num_envs), {**MIRROR, **{right: left for left, right in MIRROR.items()}})
    if kind == "backwards":
        return Exchanged(Scripted(num_envs), REVERSE)
    if kind == "spin":
        return Fixed(num_envs, "turn left")
    name, colon, share = kind.partition(":")
    if name == "noisy":
        return Noisy(Scripted(num_envs), _share(share) if colon else NOISE, num_envs, seed)
    raise ValueError(f"there is no broken policy {kind!r:.40}; choose one of {', '.join(KINDS)}")


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"the share of random actions is {text!r:.40}; give a number from 0 to 1")
    return share
