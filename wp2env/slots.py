"""What the environment itself remembers of every slot; the rest of the state is the world's and the task's."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields

import numpy as np

from world_model.controls import FIRST_PERSON, NOTHING
from wp2env.options import StartRequest
from wp2env.starts import Start


@dataclass
class Slots:
    """State of ``B`` slots."""

    clips: np.ndarray  # uint8 [B, F, H, W, 3], the frames of the newest chunk; a still one after a reset
    steps: np.ndarray  # int64 [B], steps of the running episode
    views: np.ndarray  # int64 [B], perspective of the newest latent
    ready: np.ndarray  # bool [B], was reset at least once
    ended: np.ndarray  # bool [B], the last step ended the episode and no reset followed yet
    starts: list[Start | None]  # where the running episode began
    requests: list[StartRequest | None]  # that the start came from
    characters: list[str | None]  # set by the user, in force in both perspectives until the next reset
    random: list[np.random.Generator | None]  # draws starts and episode seeds
    seeds: list[int | None]  # that `random` was made from
    task_random: list[np.random.Generator | None]  # for the task, made anew in every episode

    @classmethod
    def empty(cls, num_envs: int, clip_shape: tuple[int, int, int, int]) -> Slots:
        """Slots before their first reset."""
        return cls(
            clips=np.zeros((num_envs, *clip_shape), dtype=np.uint8),
            steps=np.zeros(num_envs, dtype=np.int64),
            views=np.full(num_envs, FIRST_PERSON, dtype=np.int64),
            ready=np.zeros(num_envs, dtype=bool),
            ended=np.zeros(num_envs, dtype=bool),
            starts=[None] * num_envs,
            requests=[None] * num_envs,
            characters=[None] * num_envs,
            random=[None] * num_envs,
            seeds=[None] * num_envs,
            task_random=[None] * num_envs,
        )

    @property
    def frames(self) -> np.ndarray:
        """The newest frames, uint8 ``[B, H, W, 3]``."""
        return self.clips[:, -1]

    def copy(self) -> Slots:
        """An independent copy; starts, which nobody changes, are shared."""
        twin = Slots(**{item.name: copy.copy(getattr(self, item.name)) for item in fields(self)})
        twin.random, twin.task_random = copy.deepcopy((self.random, self.task_random))
        return twin

    def character(self, slot: int, view: int) -> str:
        """The character's caption in a perspective, as set by the user or else as the start has it."""
        chosen = self.characters[slot]
        if chosen is not None:
            return chosen
        start = self.starts[slot]
        return NOTHING if start is None else start.character(view)
