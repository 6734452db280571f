"""The velocity network of the world model."""

from world_model.transformer.block import Conditioning, KeyValue
from world_model.transformer.network import VelocityTransformer

__all__ = ["Conditioning", "KeyValue", "VelocityTransformer"]
