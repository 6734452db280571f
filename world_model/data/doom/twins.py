"""Twins: the same frames played twice, without an event and with it, so that they differ in what the event does.

A store of twins holds pair ``k`` as the clips ``2k`` (without) and ``2k + 1`` (with). Both have the same actions and
the same ``context`` frames at first; then the event begins. The seed decides every byte, but a pair depends on the
pairs before it: at every place the kind that has the fewest pairs so far comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from world_model.data.clips import Clip
from world_model.data.doom.events import BUILDERS
from world_model.data.doom.game import DoomGame
from world_model.data.doom.job import SHARD_BYTES
from world_model.data.doom.levels import random_level
from world_model.data.doom.recipe import CLIPS_PER_LEVEL, LEVEL_SEEDS, Recipe
from world_model.data.doom.take import Take, is_visible
from world_model.data.store import MANIFEST, ClipStore, ShardEntry, ShardWriter, read_manifest, write_manifest

LEVELS_PER_GAME = 64  # a new engine and level file after so many; each level is visited once
VISITS_PER_PAIR = 60  # a sunset needs a courtyard by day, which one visit in twenty begins in


class TwinTake(Take):
    """Plays one event of a wanted kind after ``context`` frames, without it and then with it."""

    def twins(self, kinds: list[str], context: int) -> tuple[Clip, Clip] | None:
        """The clips without and with the first of these kinds that can happen here, None if none can or if what
        happens cannot be seen."""
        self.steps = [self._reset()]
        self._play(context - 1)
        event = next(filter(None, (BUILDERS[kind](self.game, self.rng) for kind in kinds)), None)
        if event is None:
            return None
        self._play(self.recipe.frames - context)
        without = self._clip()
        shown = self._play_again(context, event)
        if not is_visible(event, self.steps[context:], shown):
            return None
        self.event, self.event_frame, self.steps[context:] = event, context, shown
        return without, self._clip()


def record_twins(
    out: Path, *, per_kind: int, context: int, frames: int, size: int = 64, seed: int = 0, split: str = "train"
) -> ClipStore:
    """Record ``per_kind`` pairs of every event kind into the folder ``out``, unless they are there already.

    A clip has ``frames`` frames, the first ``context`` of them before the event. Runs in this process.

    Raises:
        ValueError: for impossible numbers and for a folder that holds another recording.
        RuntimeError: when a kind cannot be had often enough.
    """
    if per_kind < 1 or not 1 <= context < frames:
        raise ValueError(
            f"per_kind is {per_kind}, context {context} and frames {frames}; "
            "give at least 1 pair, 1 frame of context and more frames than that"
        )
    if split not in LEVEL_SEEDS:
        raise ValueError(f"twins of split {split!r} cannot be recorded; choose one of {', '.join(LEVEL_SEEDS)}")
    recipe = Recipe(seed, split, frames, size)
    told = {**asdict(recipe), "twins_per_kind": per_kind, "context": context}
    if (out / MANIFEST).exists():
        if read_manifest(out)[1] != told:
            raise ValueError(f"{out} holds another recording than {told}; choose another folder")
        return ClipStore(out)
    out.mkdir(parents=True, exist_ok=True)
    write_manifest(out, _write(out, recipe, _pairs(recipe, per_kind, context)), told)
    return ClipStore(out)


def _pairs(recipe: Recipe, per_kind: int, context: int) -> Iterator[tuple[Clip, Clip]]:
    """Pairs until every kind has its share."""
    missing = dict.fromkeys(BUILDERS, per_kind)
    visits = VISITS_PER_PAIR * sum(missing.values())
    with tqdm(total=sum(missing.values()), unit="pair", desc="recording twins") as bar:
        for first in range(0, visits, LEVELS_PER_GAME):
            clips = [visit * CLIPS_PER_LEVEL for visit in range(first, first + LEVELS_PER_GAME)]
            with _playing(recipe, clips) as game:
                for level, clip in enumerate(clips):
                    wanted = sorted((kind for kind in missing if missing[kind]), key=lambda kind: -missing[kind])
                    if not wanted:
                        return
                    pair = TwinTake(game, level, recipe, clip).twins(wanted, context)
                    if pair:
                        missing[pair[1].meta["event"]["kind"]] -= 1
                        bar.update()
                        yield pair
    lacking = ", ".join(kind for kind in missing if missing[kind])
    raise RuntimeError(f"{visits} visits were not enough for {per_kind} events of each kind; lacking: {lacking}")


@contextmanager
def _playing(recipe: Recipe, clips: list[int]) -> Iterator[DoomGame]:
    """A game whose level ``k`` is that of ``clips[k]``."""
    game = DoomGame([random_level(recipe.level_seed(clip)) for clip in clips], recipe.size)
    try:
        yield game
    finally:
        game.close()


def _write(out: Path, recipe: Recipe, pairs: Iterator[tuple[Clip, Clip]]) -> list[ShardEntry]:
    """The shards of all pairs; none is split between two."""
    entries: list[ShardEntry] = []
    pair_bytes = 2 * recipe.frames * recipe.size**2 * 3
    per_shard = max(1, SHARD_BYTES // pair_bytes)
    writer = ShardWriter(out / "shard-00000.safetensors")
    for pair in pairs:
        if len(writer.clips) == 2 * per_shard:
            entries.append(writer.close())
            writer = ShardWriter(out / f"shard-{len(entries):05d}.safetensors")
        for clip in pair:
            writer.add(clip)
    return [*entries, writer.close()]
