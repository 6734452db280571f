"""Starts in the middle of recordings, for imagined episodes: a world continues from states that were really seen.

Such episodes can be short, because a recorded moment may lie anywhere on the way to the goal; a world's errors have
less time to grow, and what leads to the goal is learned from pictures that its first frames still resemble.
"""

from __future__ import annotations

import numpy as np

from world_model.controls import FIRST_PERSON, PERSPECTIVE
from world_model.data.clips import Clip
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore
from wp2env.starts import StartBank

MOMENT_FRAMES = 4  # of a recorded moment, as many as a start of a task has


def starts_on_the_way(
    store: ClipStore | JoinedStore, task: str, count: int, frames: int, generator: np.random.Generator
) -> StartBank:
    """Moments of clips that fulfil a task, before they do: ``count`` different ones, drawn evenly from the clips.

    Args:
        store: recordings with the task's true reward, in first person.
        frames: of each start; the newest one is the moment.

    Returns:
        A bank with the actions that led to the frames. It knows no way to its moments in the true game.

    Raises:
        ValueError: when the recordings know no reward for the task or hold fewer such moments.
    """
    moments: list[tuple[int, int]] = []  # clip and newest frame, the first of every clip first, then the second, ...
    turns: list[int] = []
    for index in generator.permutation(len(store)):
        found = generator.permutation(_open_moments(store[int(index)], task, frames))
        moments += [(int(index), int(moment)) for moment in found]
        turns += range(len(found))
    if len(moments) < count:
        raise ValueError(
            f"the recordings hold {len(moments)} moments with {frames} frames before {task!r} is fulfilled, and "
            f"{count} starts are asked for; record more with `wp2 record doom --play tasks`, or ask for fewer"
        )
    chosen = [moments[place] for place in np.argsort(turns, kind="stable")[:count]]
    clips = [(store[clip], slice(newest + 1 - frames, newest + 1)) for clip, newest in chosen]
    return StartBank(
        np.stack([clip.frames[window] for clip, window in clips]),
        tuple(clip.caption_at(window.stop - 1) for clip, window in clips),
        np.full(count, FIRST_PERSON, np.uint8),
        np.stack([clip.actions[window] for clip, window in clips]),
    )


def _open_moments(clip: Clip, task: str, frames: int) -> np.ndarray:
    """The frames of a clip from which its task is still to be fulfilled, and is fulfilled later."""
    if task not in clip.rewards:
        known = ", ".join(map(repr, clip.rewards)) or "none"
        raise ValueError(f"a clip knows no reward for {task!r}, it knows {known}; give recordings that do")
    fulfilled = np.flatnonzero(clip.rewards[task] > 0)
    if not len(fulfilled) or (clip.actions[: fulfilled[0], PERSPECTIVE] != FIRST_PERSON).any():
        return np.arange(0)
    return np.arange(frames - 1, fulfilled[0])
