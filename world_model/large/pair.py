"""Both experts of a large world in training, for the stages whose rollouts go through all noise levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from world_model.flow import training_levels
from world_model.large.folder import LargeWorld, read_large_world
from world_model.large.trainable import Trainable, TrainableWorld, open_trainable
from world_model.parallel_decoder import ParallelDecoder


class TrainablePair(Trainable):
    """Experts by name; each step of training asks the one that serves its noise level, and that one learns from it."""

    def __init__(self, large: LargeWorld, experts: Mapping[str, TrainableWorld], path: Path | None = None) -> None:
        super().__init__(large, path)
        self.experts = nn.ModuleDict(experts)

    def expert_at(self, level: float) -> str:
        """The expert that serves a noise level."""
        return self._large.config.expert_at(level)

    def draw_range(self, shift: float, generator: torch.Generator) -> tuple[float, float]:
        """The noise levels of one of the experts, chosen as often as levels to train at, `training_levels`, are its."""
        level = training_levels((), shift, generator)
        return self._large.config.noise_range(self.expert_at(float(level)))

    @property
    def parallel_decoder(self) -> JoinedDecoders | None:
        """The interval heads of all experts, if they were distilled."""
        if not self.config.flow.blocks:
            return None
        return JoinedDecoders([world.parallel_decoder for world in self.experts.values()])

    def with_blocks(self, blocks: tuple[int, ...]) -> TrainablePair:
        """`TrainableWorld.with_blocks` of every expert.

        Raises:
            ValueError: as there.
        """
        experts = {name: world.with_blocks(blocks) for name, world in self.experts.items()}
        pair = TrainablePair(self.large, experts, self.path)
        pair.config = replace(self.config, flow=next(iter(experts.values())).config.flow)
        pair.know(self.text)
        return pair.train(self.training)


class JoinedDecoders:
    """The interval heads of several experts as those of one network, see `ParallelDecoder`."""

    def __init__(self, decoders: Sequence[ParallelDecoder]) -> None:
        self.decoders = decoders
        self.levels_on_cpu = decoders[0].levels_on_cpu

    def bounds(self, evaluations: int) -> list[int]:
        """The intervals at which so many evaluations of a chunk begin, and how many there are.

        Raises:
            ValueError: when the blocks do not split into as many equal groups.
        """
        return self.decoders[0].bounds(evaluations)

    def block(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The heads of intervals ``[start, end)`` as one layer.

        Raises:
            ValueError: when they are not those of one expert.
        """
        for decoder in self.decoders:
            if decoder.serves(start, end):
                return decoder.block(start, end)
        raise ValueError(
            f"one network evaluation of the intervals {start} to {end} would need both experts; give --set "
            "stable_forcing.evaluations=[4], or [2, 4]"
        )


def open_pair(folder: Path) -> TrainablePair:
    """All experts of a large world's folder, float32 on the CPU.

    Raises:
        FileNotFoundError: when a part of it is not there.
        ValueError: for damaged files.
    """
    large = read_large_world(folder)
    return TrainablePair(large, {name: open_trainable(folder, name) for name in large.config.experts}, folder)
