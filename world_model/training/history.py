"""Stage 4, memory II: the real clip from its real history, bidirectional inside the clip (TinyHistory, stage II).

The compressor goes on learning: frozen after stage I it would keep frames, and not what the next clip needs of them
(`frame_query`). The outcome is the bidirectional teacher with memory, from which the autoregressive student starts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.training.autoregressive import AutoregressiveStage
from world_model.transformer.masks import Layout


class HistoryStage(AutoregressiveStage):
    """Flow matching of whole clips after ``[sink | compressed | adjacent]``: the mask without its causal part."""

    name = "history"

    def layout(self, latents: int, first_target: int) -> Layout:
        return self.world.layouts.bidirectional(self.world.config, latents, first_target)

    def draw_levels(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """One noise level for each clip: ``[B, T]``."""
        levels = self.noise_levels((shape[0], 1), generator)
        return levels.expand(shape).clone()
