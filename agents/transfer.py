"""Training for the question whether what is learned in a generated world holds in the true game."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gymnasium.vector import AutoresetMode, VectorEnv

from agents.crippled_worlds import ShuffledActions
from agents.train import AgentRun


@dataclass(frozen=True)
class TransferRun(AgentRun):
    """An `AgentRun` in a generated world that can be made livelier, or made to ignore the agent."""

    temperature: float = 1.0  # scale of the noise that the world's chunks begin from
    shuffled: bool = False  # whether actions lose their meaning, see `ShuffledActions`

    @contextmanager
    def env(self, num_envs: int, starts: str | None, mode: AutoresetMode, device: str) -> Iterator[VectorEnv]:
        """As `AgentRun.env`."""
        with super().env(num_envs, starts, mode, device, self.temperature) as env:
            yield ShuffledActions(env, self.seed) if self.shuffled else env
