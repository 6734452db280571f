"""What the training loop asks of a stage of the curriculum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from world_model.config import TrainingConfig, WorldConfig


class Judgement(NamedTuple):
    """What a stage thinks of its outcome so far."""

    best: bool = False  # better than ever before in this run: worth keeping
    collapsed: str | None = None  # why the run has to stop; None: it has not


class Stage(nn.Module, ABC):
    """A module whose ``forward(batch)`` is its loss and some metrics, and whose ``batch`` draws everything random."""

    name: ClassVar[str]
    settings_name: ClassVar[str | None] = None  # whose part of a curriculum's configuration it has; None: its own
    # The axis that counts the rows of a batch, in tensors where it is not the first; None: a tensor is for all rows.
    rows: ClassVar[Mapping[str, int | None]] = {}
    config: TrainingConfig

    @classmethod
    def settings(cls, config: WorldConfig) -> TrainingConfig:
        """The stage's part of a world's configuration."""
        return getattr(config.curriculum, cls.settings_name or cls.name)

    @abstractmethod
    def batch(self, generator: torch.Generator, step: int) -> dict[str, Tensor]:
        """What step ``step`` trains on, a function of the arguments alone."""

    def share(self, batch: dict[str, Tensor], process: int, processes: int) -> dict[str, Tensor]:
        """The rows of a batch that one of several processes learns from; single numbers are for all.

        Raises:
            ValueError: when the batch does not split evenly.
        """
        if self.config.batch % processes:
            raise ValueError(
                f"a batch of {self.config.batch} does not split among {processes} processes; start as many as divide "
                f"it, or give another --set {self.settings_name or self.name}.batch=NUMBER"
            )
        axes = {name: self.rows.get(name, 0 if value.ndim else None) for name, value in batch.items()}
        return {
            name: value if axes[name] is None else value.chunk(processes, axes[name])[process]
            for name, value in batch.items()
        }

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """The tensors that the stage trains and a checkpoint keeps."""

    def hidden_matrices(self) -> Iterable[nn.Parameter]:
        """What Muon trains."""
        return ()

    def rates(self) -> list[tuple[list[nn.Parameter], float]]:
        """Parameters that learn at another rate than AdamW's, and its share of that."""
        return []

    def judge(self, metrics: dict[str, Tensor]) -> Judgement:
        """What the newest step's metrics say of the run as a whole."""
        return Judgement()
