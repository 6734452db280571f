"""One expert of the published pair: a velocity network and its own compressor."""

from __future__ import annotations

from torch import nn

from world_model.large.compressor import HistoryCompressor
from world_model.large.config import LargeConfig
from world_model.large.transformer import LargeTransformer


class Expert(nn.Module):
    """The networks that serve one range of noise levels; ``few_step`` is the form with the fused heads."""

    def __init__(self, config: LargeConfig, few_step: bool = False) -> None:
        super().__init__()
        self.config = config
        self.transformer = LargeTransformer(config, few_step)
        self.compressor = HistoryCompressor(config)
