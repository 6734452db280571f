"""Single controls in the true game: the same start, once for each control and nothing but this control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from world_model.controls import JUMP, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW, FrameAction
from world_model.data.clips import Clip

if TYPE_CHECKING:
    from world_model.data.doom.game import Step
    from world_model.data.doom.take import Take

FRAMES = 8  # under the control: about a second
TURN, LOOK = 8.0, 2.0  # degrees a frame; half of what recordings turn and look by at most


@dataclass(frozen=True)
class Probe:
    """One control, alone: ``action`` (its perspective does not count) for ``held`` frames, then nothing."""

    name: str
    column: int | None  # of the action row; None for standing still
    action: FrameAction = FrameAction()
    held: int | None = None  # None: to the end
    switches: bool = False  # to the other perspective, for good

    def rows(self, frames: int, perspective: int) -> np.ndarray:
        """The action rows, float32 ``[frames, 6]``, after frames in ``perspective``."""
        rows = np.zeros((frames, len(self.action.row())), np.float32)
        rows[: self.held] = self.action.row()
        rows[:, PERSPECTIVE] = 1 - perspective if self.switches else perspective
        return rows


PROBES = (
    Probe("turn right", YAW, FrameAction(yaw=TURN)),
    Probe("turn left", YAW, FrameAction(yaw=-TURN)),
    Probe("look up", PITCH, FrameAction(pitch=LOOK)),
    Probe("look down", PITCH, FrameAction(pitch=-LOOK)),
    Probe("walk forward", LONGITUDINAL, FrameAction(longitudinal=1)),
    Probe("walk back", LONGITUDINAL, FrameAction(longitudinal=-1)),
    Probe("step right", LATERAL, FrameAction(lateral=1)),
    Probe("step left", LATERAL, FrameAction(lateral=-1)),
    Probe("switch perspective", PERSPECTIVE, switches=True),
    Probe("jump", JUMP, FrameAction(jump=1), held=1),
    Probe("stand still", None),
)


def record(starts: int, context: int, frames: int, size: int, seed: int) -> dict[Probe, list[Clip]]:
    """For every probe, ``starts`` clips of ``context + frames`` frames, each in a held-out level of its own.

    A recorder's policy walks through the context, the same for all probes, in one perspective and without events; then
    the probe takes over. ``actions`` are the rows as the game applied them.
    """
    from world_model.data.doom.game import DoomGame
    from world_model.data.doom.levels import random_level
    from world_model.data.doom.recipe import CLIPS_PER_LEVEL, Recipe
    from world_model.data.doom.take import Take

    recipe = Recipe(seed, "test", context + frames, size)
    indices = [start * CLIPS_PER_LEVEL for start in range(starts)]
    game = DoomGame([random_level(recipe.level_seed(index)) for index in indices], size)
    clips: dict[Probe, list[Clip]] = {probe: [] for probe in PROBES}
    try:
        for level, index in enumerate(tqdm(indices, unit="start", desc="recording single controls")):
            take = Take(game, level, recipe, index)
            walked = _walk(take, context)
            for probe in PROBES:
                clips[probe].append(_play(take, np.concatenate([walked, probe.rows(frames, int(take.views[0]))])))
    finally:
        game.close()
    return clips


def _reset(take: Take) -> Step:
    return take.game.reset(take.level, take.start, take.look, int(take.views[0]))


def _walk(take: Take, frames: int) -> np.ndarray:
    """The rows ``[frames, 6]`` of a policy's walk in one perspective; the first is idle."""
    rows = [_reset(take).action]
    while len(rows) < frames:
        row = take.policy(take.game).copy()
        row[PERSPECTIVE] = take.views[0]
        rows.append(take.game.step(row).action)
    return np.stack(rows)


def _play(take: Take, rows: np.ndarray) -> Clip:
    """What the game shows under ``rows [T, 6]``, of which the first is the start's."""
    from world_model.data.doom.take import LICENCE, SOURCE, caption_changes

    steps = [_reset(take), *(take.game.step(row) for row in rows[1:])]
    level_seed = take.game.levels[take.level].seed
    return Clip(
        frames=np.stack([step.frame for step in steps]),
        actions=np.stack([step.action for step in steps]),
        captions=caption_changes([step.caption for step in steps]),
        pose=np.stack([step.pose for step in steps]),
        source=SOURCE.format(seed=level_seed),
        licence=LICENCE,
        meta={"level_seed": level_seed},
    )
