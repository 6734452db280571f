"""Whether rollouts in training still look and behave like the game, and when to give a run up.

Distribution matching can go wrong without its loss telling: pictures freeze, darken, burn out, or stop answering. So
every now and then the rollout's clips are compared with the recorded ones of the same windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

LEVELS = 127.5  # grey levels in one unit of a picture in [-1, 1]
PATIENCE = 2  # looks in a row outside the band that end a run


@dataclass
class Look:
    """Mean brightness, contrast and motion of clips ``[clips]``, in grey levels."""

    brightness: Tensor
    contrast: Tensor  # standard deviation within a frame
    motion: Tensor  # mean absolute difference of consecutive frames

    @classmethod
    def of(cls, frames: Tensor, clips: int) -> Look:
        """The look of frames ``[B, F, 3, H, W]`` in [-1, 1], cut into so many clips."""
        parts = (LEVELS * frames.float()).chunk(clips, dim=1)
        return cls(
            torch.stack([LEVELS + part.mean() for part in parts]),
            torch.stack([part.std(dim=(2, 3, 4)).mean() for part in parts]),
            torch.stack([part.diff(dim=1).abs().mean() for part in parts]),
        )


class CollapseWatch(nn.Module):
    """Judges looks one after the other; the smaller the distance from the true look, the better. Only looks of equally
    long rollouts compare: when rollouts grow, the best look is sought anew.

    A look is outside the band when, in the last clip, brightness is off by more than ``BRIGHTNESS`` grey levels,
    contrast or motion by more than their factors, or when the response to actions is below ``RESPONSE`` of the first.
    """

    BRIGHTNESS: ClassVar[float] = 60.0
    CONTRAST: ClassVar[float] = 3.0
    MOTION: ClassVar[float] = 12.0
    RESPONSE: ClassVar[float] = 1 / 3

    def __init__(self) -> None:
        super().__init__()
        for name, value in (("best", math.inf), ("clips", 0.0), ("first_response", math.nan), ("outside", 0.0)):
            self.register_buffer(name, torch.tensor(value))  # so that a checkpoint remembers them

    @torch.no_grad()
    def judge(self, seen: Look, true: Look, response: float) -> tuple[bool, str | None]:
        """Whether this look is the best one so far of rollouts as long, and why the run should stop, if it should."""
        if self.first_response.isnan():
            self.first_response.fill_(response)
        if len(seen.motion) > self.clips:
            self.clips.fill_(len(seen.motion))
            self.best.fill_(math.inf)
        complaint, distance = self._complaint(seen, true, response), self.distance(seen, true)
        self.outside.copy_(self.outside + 1 if complaint else self.outside * 0)
        better = complaint is None and distance < self.best
        if better:
            self.best.fill_(distance)
        return bool(better), complaint if self.outside >= PATIENCE else None

    @staticmethod
    def distance(seen: Look, true: Look) -> float:
        """Mean over clips of the log ratios of contrast and of motion, and of brightness in units of 50 levels."""
        ratios = _log_ratio(seen.contrast, true.contrast).abs() + _log_ratio(seen.motion, true.motion).abs()
        return float((ratios + (seen.brightness - true.brightness).abs() / 50).mean())

    def _complaint(self, seen: Look, true: Look, response: float) -> str | None:
        shift = float(seen.brightness[-1] - true.brightness[-1])
        if not abs(shift) <= self.BRIGHTNESS:  # also for NaN
            return f"the last clip's brightness is {shift:+.0f} grey levels off, more than {self.BRIGHTNESS:.0f}"
        for name, most in (("contrast", self.CONTRAST), ("motion", self.MOTION)):
            ratio = _log_ratio(getattr(seen, name)[-1], getattr(true, name)[-1]).exp().item()
            if not 1 / most <= ratio <= most:
                return f"the last clip's {name} is {ratio:.2f} of the true one, outside 1/{most:g} to {most:g}"
        if not response >= self.RESPONSE * float(self.first_response):
            return f"the response to actions is {response:.3f}, from {self.first_response:.3f} at the beginning"
        return None


def _log_ratio(a: Tensor, b: Tensor) -> Tensor:
    return torch.log((a + 0.1) / (b + 0.1))  # a still clip has no motion at all
