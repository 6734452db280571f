"""What is kept while an agent learns: checkpoints, and how well it did on starts that it does not learn from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from tqdm import tqdm

from agents.checkpoints import save_checkpoint
from agents.evaluate import evaluate
from agents.policies.card import PolicyCard
from agents.policies.trained import Trained
from world_model.data.store import write_json
from world_model.training.interruption import Interruption

EVALUATIONS = "evaluations.json"


@dataclass(frozen=True)
class Keeping:
    """When checkpoints are written, beside the last one; the rollout in hand is finished first.

    Attributes:
        every: steps between two of them.
        at: further step counts; 0 for the untrained policy.
        call: is called with the folder of each one.
    """

    every: int = 10_000
    at: Sequence[int] = ()
    call: Callable[[Path], None] | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"a checkpoint is due every {self.every} steps; give at least 1")

    def due(self, before: int, now: int) -> bool:
        """Whether one falls to the steps after ``before``, up to ``now``."""
        return now // self.every > before // self.every or any(before < point <= now for point in self.at)


@dataclass(frozen=True)
class Validation:
    """How an agent is watched while it learns: the first starts of a file that it does not learn from."""

    starts: str
    episodes: int = 32
    every: int = 10_000  # steps

    def __post_init__(self) -> None:
        if self.episodes < 1 or self.every < 1:
            raise ValueError(f"there are {self.episodes} episodes every {self.every} steps; give at least 1 of each")


class Judge:
    """Evaluates a model that is being trained, and writes ``evaluations.json``.

    Args:
        env: an environment with ``autoreset_mode=DISABLED``.
        max_steps: length of an episode.
        file: what is in it about later steps than the present one, which a killed run left, is dropped.

    Raises:
        ValueError: when the environment has fewer starts than the validation has episodes.
    """

    def __init__(self, env: VectorEnv, validation: Validation, max_steps: int, seed: int, file: Path) -> None:
        self.env, self.validation, self.max_steps, self.seed, self.file = env, validation, max_steps, seed, file
        env.reset(options={"start_index": validation.episodes - 1})  # one that is missing is missed now, not later

    def due(self, before: int, now: int) -> bool:
        """Whether an evaluation falls to the steps after ``before``, up to ``now``."""
        return now // self.validation.every > before // self.validation.every

    def __call__(self, model: Any, card: PolicyCard) -> dict[str, float]:
        """Means of all measures by name."""
        policy = Trained(model, card, self.env.num_envs, self.seed)
        found = evaluate(policy, self.env, range(self.validation.episodes), self.max_steps, self.seed)
        means = {name: float(values.mean()) for name, values in found.measures.items()}
        before = json.loads(self.file.read_text())["evaluations"] if self.file.exists() else []
        earlier = [entry for entry in before if entry["steps"] < card.steps]
        write_json(self.file, {"evaluations": [*earlier, {"steps": card.steps, **means}]})
        return means


class Keeper(BaseCallback):
    """Writes checkpoints and evaluates between rollouts, where the weights and the count of steps belong together.

    Args:
        out: folder of the run.
        card: the policy's card after so many steps.
    """

    def __init__(
        self,
        out: Path,
        card: Callable[[int], PolicyCard],
        keeping: Keeping,
        judge: Judge | None,
        interruption: Interruption,
        bar: tqdm,
    ) -> None:
        super().__init__()
        self.out, self.card, self.keeping, self.judge = out, card, keeping, judge
        self.interruption, self.bar = interruption, bar
        self.learned = 0  # steps that the weights come from

    def _init_callback(self) -> None:
        self.learned = self.model.num_timesteps

    def _on_training_start(self) -> None:
        if self.learned == 0 and 0 in self.keeping.at:
            self._save()

    def _on_rollout_start(self) -> None:
        before, self.learned = self.learned, self.model.num_timesteps
        if self.keeping.due(before, self.learned):
            self._save()
        if self.judge is not None and self.judge.due(before, self.learned):
            self._judge()

    def _on_step(self) -> bool:
        self.bar.update(min(self.model.num_timesteps, self.bar.total) - self.bar.n)
        return not self.interruption.asked

    def finish(self) -> Path:
        """Write the last checkpoint; what an interrupted rollout gathered is not learned from and does not count."""
        if self.interruption.asked:
            self.model.num_timesteps = self.learned
        folder = self._save()
        if self.judge is not None and self.model.num_timesteps > self.learned:
            self._judge()
        return folder

    def _save(self) -> Path:
        card = self.card(self.model.num_timesteps)
        folder, new = save_checkpoint(self.out, self.model, card)
        if new and self.keeping.call is not None:
            self.keeping.call(folder)
        return folder

    def _judge(self) -> None:
        means = self.judge(self.model, self.card(self.model.num_timesteps))
        for name, value in means.items():
            self.logger.record(f"validation/{name}", value)
        self.bar.set_postfix({name: f"{value:.2f}" for name, value in means.items()})
