"""How pictures look, frame by frame: what drifts first when a world model feeds on its own pictures."""

from __future__ import annotations

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, Rec. ITU-R BT.601
FRAMES_AT_ONCE = 64  # of every video, so that long ones are never held as floats


def looks(frames: Tensor, before: Tensor) -> dict[str, Tensor]:
    """Measures ``[B, T]`` of uint8 videos ``[B, T, H, W, 3]`` whose frame before the first is ``before [B, H, W, 3]``.

    Brightness (mean), contrast (standard deviation within a frame), motion (mean absolute difference from the frame
    before) and sharpness (root mean square of the gradient) are in grey levels of 0 to 255; saturation is that of
    HSV, 0 to 1.
    """
    parts: dict[str, list[Tensor]] = {}
    for piece in frames.split(FRAMES_AT_ONCE, dim=1):
        for name, values in _looks(piece, before).items():
            parts.setdefault(name, []).append(values)
        before = piece[:, -1]
    return {name: torch.cat(values, dim=1) for name, values in parts.items()}


def _looks(frames: Tensor, before: Tensor) -> dict[str, Tensor]:
    colours = frames.float()
    grey = colours @ colours.new_tensor(LUMA)  # [B, T, H, W]
    largest, smallest = colours.amax(-1), colours.amin(-1)
    across, down = grey.diff(dim=-1), grey.diff(dim=-2)
    earlier = torch.cat([before[:, None].float(), colours[:, :-1]], dim=1)
    return {
        "brightness": grey.mean((-2, -1)),
        "contrast": grey.flatten(-2).std(-1, correction=0),
        "saturation": ((largest - smallest) / largest.clamp_min(1)).mean((-2, -1)),
        "motion": (colours - earlier).abs().mean((-3, -2, -1)),
        "sharpness": (across.square().mean((-2, -1)) + down.square().mean((-2, -1))).sqrt(),
    }
