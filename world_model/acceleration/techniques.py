"""What can be switched on, and what it needs."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, fields

import torch

FLOAT8_CAPABILITY = (8, 9)  # of the first NVIDIA GPUs that multiply in it


@dataclass(frozen=True)
class Techniques:
    """What is switched on."""

    fused_projections: bool = False  # queries, keys and values of self-attention in one product
    cached_text: bool = False  # a caption's keys and values are kept until another caption comes
    bfloat16: bool = False  # of the networks; noise levels and latents stay float32
    int8: bool = False  # weights of the blocks' layers, with a scale per output; activations keep their precision
    float8: bool = False  # weights and activations of the blocks' layers, with one scale each
    compiled: bool = False  # blocks, by torch.compile; the first steps are slow
    graphed: bool = False  # all blocks as one CUDA graph, launched at once

    def __post_init__(self) -> None:
        if self.int8 and self.float8:
            raise ValueError("int8 and float8 are two precisions of the same weights; choose one")

    def __str__(self) -> str:
        return ", ".join(item.name for item in fields(self) if getattr(self, item.name))

    def missing(self, device: torch.device) -> str | None:
        """What these techniques need that is not here, None when they can be used on ``device``."""
        if self.graphed and device.type != "cuda":
            return "needs a GPU"
        if self.float8 and (device.type != "cuda" or torch.cuda.get_device_capability(device) < FLOAT8_CAPABILITY):
            return "needs a GPU of compute capability 8.9"
        compiler = os.environ.get("CXX", "g++")
        if self.compiled and device.type == "cpu" and not (shutil.which(compiler) or shutil.which("clang++")):
            return f"needs a C++ compiler ({compiler} is not installed)"
        return None
