"""Policies that do not look: the floor that every other one is compared with."""

from __future__ import annotations

import numpy as np

from agents.policies.protocol import check_pictures
from wp2env.spaces import DiscreteActions

MENU = DiscreteActions.menu
CHOICE = {name: place for place, name in enumerate(MENU)}


class Fixed:
    """The same choice of the menu at every step."""

    action_mode = "discrete"

    def __init__(self, num_envs: int, choice: str) -> None:
        self.num_envs, self.choice = num_envs, choice

    def reset(self, mask: np.ndarray) -> None:
        """Nothing lasts."""

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``."""
        check_pictures(repr(self.choice), observations, self.num_envs)
        return np.full(self.num_envs, CHOICE[self.choice], dtype=np.int64)


class Random:
    """A choice of the menu at random, from a generator per slot."""

    action_mode = "discrete"

    def __init__(self, num_envs: int, seed: int) -> None:
        self.generators = slot_generators(num_envs, seed)

    def reset(self, mask: np.ndarray) -> None:
        """Nothing lasts; the generators go on."""

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``."""
        check_pictures("'random'", observations, len(self.generators))
        return np.array([generator.integers(len(MENU)) for generator in self.generators], dtype=np.int64)


def slot_generators(num_envs: int, seed: int) -> list[np.random.Generator]:
    """A generator per slot; slot i has the same one whatever the number of slots."""
    return [np.random.default_rng([seed, slot]) for slot in range(num_envs)]
