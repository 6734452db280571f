"""A policy plays the first starts of a bank, in a generated world or in the true game, and some of it is filmed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium.vector import AutoresetMode
from tqdm import tqdm

from agents.evaluate import Evaluation, evaluate
from agents.film import Film
from agents.places import make_env
from agents.policies import load_policy


@dataclass(frozen=True)
class Played:
    """Episodes of one policy in one place.

    Attributes:
        evaluation: how they went.
        film: the pictures of the first ones.
        rate: pictures a second.
    """

    evaluation: Evaluation
    film: Film
    rate: float


@dataclass(frozen=True)
class Match:
    """What is the same for every policy and place, so that they can be compared.

    Attributes:
        task: the task's name.
        starts: where episodes begin; None is the world's own.
        episodes: the first so many starts are played, once each.
        slots: episodes side by side, at most.
        steps: the longest an episode can be.
        seed: of the policy and of episode 0; the next ones follow.
        world: name or folder of the generated world.
        dtype: that the world calculates in.
        device: that it is on.
    """

    task: str
    starts: Path | None
    episodes: int
    slots: int
    steps: int
    seed: int
    world: str
    dtype: str = "float32"
    device: str = "cpu"

    def play(self, policy: str, place: str, filmed: int = 0, leave_bar: bool = False) -> Played:
        """Play it in one place, which is made for it.

        Args:
            policy: as `load_policy` takes it.
            place: one of `PLACES`.
            filmed: first episodes whose pictures are kept.
            leave_bar: whether the progress bar stays.

        Raises:
            ValueError: for what `load_policy`, `make_env` and `evaluate` refuse.
            ImportError: when the true game is not installed.
        """
        slots, film = min(self.slots, self.episodes), Film(min(filmed, self.episodes))
        actor = load_policy(policy, num_envs=slots, seed=self.seed)
        env = make_env(
            place, slots, task=self.task, starts=self.starts, world=self.world, action_mode=actor.action_mode,
            autoreset_mode=AutoresetMode.DISABLED, max_episode_steps=self.steps, dtype=self.dtype, device=self.device,
        )  # fmt: skip
        with tqdm(total=self.episodes, unit="episode", desc=f"in the {place}", leave=leave_bar) as bar:

            def watch(episode: int, frame: np.ndarray) -> None:
                film(episode, frame)
                bar.update(max(0, episode + 1 - bar.n))

            try:
                found = evaluate(actor, env, range(self.episodes), self.steps, self.seed, watch)
            finally:
                env.close()
        return Played(found, film, env.metadata["render_fps"])
