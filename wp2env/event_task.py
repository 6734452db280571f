"""A task about announced events: did what the caption says show itself?"""

from __future__ import annotations

import numpy as np

from world_model.controls import NOTHING, PERSPECTIVE
from wp2env.tasks import GRID, RewardOut, StateArrays, TaskContext, coarse


class EventHappened(StateArrays):
    """Reward 1, and the end, when the picture changes after an event was announced.

    The reward comes from the pictures alone. While the event's caption is in force and the agent stands still, every
    frame is compared with the last one before: the root-mean-square distance of their coarse 8x8 pictures, in [0, 1],
    counts from ``threshold`` on. A step with a move, a turn, a jump or a change of view begins the comparison anew, so
    that what the agent's own doing changes is not taken for the event. *Which* event it was nobody asks: a world that
    answers every announcement with the same flash is paid, and an event of a few pixels is not seen.

    Terms: ``success`` and ``change``, the distance.

    Args:
        text: the event to wait for, as it is announced (`set_event`); None for any.
        threshold: smallest change that counts, above the generator's flicker.
    """

    name = "event happened"
    _state = ("reference", "view")

    def __init__(self, text: str | None = None, threshold: float = 0.06) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold is {threshold}; give a distance above 0 and up to 1")
        self.text, self.threshold = text, threshold

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        """Compare with the slots' first pictures from now on."""
        self._clear(mask, {"reference": ((GRID * GRID * 3,), np.float32), "view": ((), np.float32)})
        self.reference[mask] = coarse(context.frames[:, -1])[mask]
        self.view[mask] = context.actions[mask, -1, PERSPECTIVE]

    def __call__(self, context: TaskContext) -> RewardOut:
        """Whether an announced event shows in the newest frame."""
        pictures, rows = coarse(context.frames[:, -1]), context.actions
        doing = np.delete(rows, PERSPECTIVE, axis=-1).any((1, 2))
        watched = ~doing & (rows[..., PERSPECTIVE] == self.view[:, None]).all(1) & self._announced(context)
        change = np.where(watched, np.sqrt(np.square(pictures - self.reference).mean(1, dtype=np.float64)), 0.0)
        self.reference = np.where(watched[:, None], self.reference, pictures)
        self.view = rows[:, -1, PERSPECTIVE].copy()
        shown = change >= self.threshold
        reward = shown.astype(np.float64)
        return RewardOut(reward, shown, {"success": reward.copy(), "change": change})

    def _announced(self, context: TaskContext) -> np.ndarray:
        events = [caption.event for caption in context.captions]
        return np.array([event != NOTHING if self.text is None else event == self.text for event in events])
