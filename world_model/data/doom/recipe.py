"""What decides a recording: split, seeds and sizes. Kept apart from the engine, so that it needs no ViZDoom."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

LEVEL_SEEDS = {  # disjoint: no level is in two splits
    "train": range(0, 10**9),
    "validation": range(10**9, 2 * 10**9),
    "test": range(2 * 10**9, 3 * 10**9),
}
SPLITS = (*LEVEL_SEEDS, "freedoom")  # freedoom: the maps of Freedoom Phase 2, out of domain
PLAYS = ("everything", "revisits", "mirror", "tasks")  # mixes of policies, defined in `mixes.MIXES`
CLIPS_PER_LEVEL = 4  # so many clips in a row visit one level, each from another place


@dataclass(frozen=True)
class Recipe:
    """What, together with a clip's index, decides every byte of it."""

    seed: int
    split: str
    frames: int  # per clip
    size: int  # pixels
    play: str = PLAYS[0]  # which mix of policies

    def told(self) -> dict[str, int | str]:
        """The recipe as manifests and clips hold it. The usual play goes without saying, as in stores recorded before
        there was a choice, which can so be continued."""
        fields = asdict(self)
        if self.play == PLAYS[0]:
            del fields["play"]
        return fields

    def generator(self, index: int, purpose: int) -> np.random.Generator:
        """A random generator that belongs to one index and purpose alone."""
        return np.random.default_rng([self.seed, SPLITS.index(self.split), index, purpose])

    def level_seed(self, clip: int) -> int:
        """The seed of the level that a clip visits."""
        seeds = LEVEL_SEEDS[self.split]
        return seeds[int(self.generator(clip // CLIPS_PER_LEVEL, purpose=0).integers(len(seeds)))]
