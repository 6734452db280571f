"""Captions to tokens."""

from world_model.text.encoder import ByteEncoder, field_texts, to_bytes

__all__ = ["ByteEncoder", "field_texts", "to_bytes"]
