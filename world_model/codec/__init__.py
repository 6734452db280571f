"""Frames to latents and back."""

from world_model.codec.causal import CausalCodec, to_uint8, to_unit

__all__ = ["CausalCodec", "to_uint8", "to_unit"]
