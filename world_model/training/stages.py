"""The stages of training by name, in the order of the curriculum."""

from __future__ import annotations

from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.codec import CodecStage, DecoderStage
from world_model.training.frame_query import FrameQueryStage
from world_model.training.full_context import FullContextStage
from world_model.training.history import HistoryStage
from world_model.training.navigation import NavigationStage

CODEC_STAGES = {"codec": CodecStage, "decoder": DecoderStage}
NETWORK_STAGES = {
    "navigation": NavigationStage,
    "frame_query": FrameQueryStage,
    "history": HistoryStage,
    "autoregressive": AutoregressiveStage,
    "full_context": FullContextStage,
}
STAGES = (*CODEC_STAGES, *NETWORK_STAGES)
