"""The one in-memory type of recorded video: frames with their controls and, where known, the truth behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from world_model.controls import StructuredCaption


@dataclass(frozen=True)
class Clip:
    """A recorded clip of ``T`` latent frames (one video frame per latent in the bundled world).

    ``actions[t]`` is the action that leads from frame ``t-1`` to frame ``t``; row 0 is idle (its perspective
    column still tells the view). ``rewards[task][t]`` and ``terminated[task][t]`` belong to the same
    transition, so the pairing is (o_{t-1}, a_t, o_t) -> r_t. The last frame is always a real one.
    """

    frames: np.ndarray  # uint8 [T, H, W, 3], RGB
    actions: np.ndarray  # float32 [T, 6], see `FrameAction`
    captions: tuple[tuple[int, StructuredCaption], ...]  # (first frame it holds for, caption), ascending, first is 0
    pose: np.ndarray | None = None  # float32 [T, 5]: x, y, z in map units, heading and pitch in degrees
    rewards: dict[str, np.ndarray] = field(default_factory=dict)  # task -> float32 [T]
    terminated: dict[str, np.ndarray] = field(default_factory=dict)  # task -> bool [T]
    source: str = ""
    licence: str = ""
    meta: dict = field(default_factory=dict)  # JSON-able: seeds, level, policy, event category, ...

    def caption_at(self, t: int) -> StructuredCaption:
        """The caption in force at frame ``t``."""
        return next(caption for start, caption in reversed(self.captions) if start <= t)
