"""Which episodes a recording has, and what decides every one of them.

Episodes are played in waves: wave w holds the episodes ``w * envs .. (w + 1) * envs - 1``, one per slot, and is over
when all of them have ended. What is random in an episode follows from (seed, episode) and, for the policy's choices,
from (seed, wave), so that any process can play any wave, in any order and again. The same wave gives the same bits for
the same number of slots and threads; another number of slots rounds differently.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Collection
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from world_model.checkpoint import WEIGHTS, find_world
from world_model.data.store import sha256_of
from wp2env.starts import BANK_FILE

HASH_DIGITS = 16
DIGEST = "_sha256"  # ends the name of what a file of a recipe holds
VERSIONS = ("worldplay2-gym", "torch", "gymnasium", "numpy")
RESET, POLICY = range(2)  # purposes of a generator


@dataclass(frozen=True)
class Plan:
    """A recording, without where it goes.

    Attributes:
        policy: as `agents.policies.load_policy` takes it.
        world: a bundled world or a folder with one; None for the true game.
        task: where rewards and ends come from, by name.
        starts: a file with a bank of starts; None for the world's own.
        envs: slots side by side, and episodes of a wave.
        steps: after which an episode is truncated.
        seed: the same one gives the same episodes.
        sampling_steps: network evaluations per chunk; None for the world's own number.
        temperature: scale of the noise that chunks begin from.
        device: that the world runs on.
    """

    policy: str
    world: str | None = "doom"
    task: str = "explore"
    starts: str | None = None
    envs: int = 8
    steps: int = 48
    seed: int = 0
    sampling_steps: int | None = None
    temperature: float = 1.0
    device: str = "cpu"

    def episodes_of(self, wave: int) -> range:
        """The episodes of a wave."""
        return range(wave * self.envs, (wave + 1) * self.envs)

    def waves(self, episodes: int, done: Collection[int]) -> list[int]:
        """The waves with any of the first ``episodes`` that is not done."""
        return sorted({episode // self.envs for episode in range(episodes) if episode not in done})

    def episode_seed(self, episode: int) -> int:
        """What its slot is reset with."""
        return self._number(episode, RESET)

    def policy_seed(self, wave: int) -> int:
        """What the policy of a wave is made with."""
        return self._number(wave, POLICY)

    def recipe(self) -> dict:
        """All that decides the episodes, JSON-able; worlds, policies and starts are told with a digest of their bytes.

        Raises:
            FileNotFoundError: when there is no such world.
        """
        told, files = asdict(self), {"policy": Path(self.policy)}
        if self.world is not None:
            folder = find_world(self.world)
            files |= {"world": folder / WEIGHTS, "starts": folder / BANK_FILE}
        if self.starts is not None:
            files["starts"] = Path(self.starts)
        return told | {f"{name}{DIGEST}": digest(path) for name, path in files.items() if path.exists()}

    def _number(self, index: int, purpose: int) -> int:
        return int(np.random.SeedSequence([self.seed, index, purpose]).generate_state(1)[0])


def identity(recipe: dict) -> dict:
    """What tells a recipe from others: bytes count, and not where they lie."""
    return {name: value for name, value in recipe.items() if f"{name}{DIGEST}" not in recipe}


def digest(path: Path) -> str:
    """The first hexadecimal digits of a file's SHA-256, or of those of all files of a folder."""
    if not path.is_dir():
        return sha256_of(path)[:HASH_DIGITS]
    files = sorted(file for file in path.rglob("*") if file.is_file())
    told = "".join(f"{file.relative_to(path)} {sha256_of(file)}\n" for file in files)
    return hashlib.sha256(told.encode()).hexdigest()[:HASH_DIGITS]


def versions() -> dict[str, str]:
    """The versions that episodes are made with."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a checkout that is not installed
            found[name] = "unknown"
    return found
