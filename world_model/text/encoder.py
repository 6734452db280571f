"""A byte-level caption encoder, trained with the world: one pass per caption field, no vocabulary, any language."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from world_model.config import TextConfig
from world_model.controls import StructuredCaption

PADDING = 0  # bytes are stored plus one
STATISTICS_MOMENTUM = 0.05
EPS = 1e-6  # of the variance


def field_texts(caption: StructuredCaption) -> list[str]:
    """The three texts that are encoded for a caption, each naming its field."""
    return [f"{name}: {text}" for name, text in caption.as_dict().items()]


def to_bytes(texts: Sequence[str], limit: int) -> Tensor:
    """UTF-8 bytes plus one, cut or zero-padded to ``limit``: uint8-valued int64 ``[n, limit]``."""
    rows = torch.full((len(texts), limit), PADDING, dtype=torch.int64)
    for row, text in zip(rows, texts, strict=True):
        values = text.encode("utf-8")[:limit]
        row[: len(values)] = torch.tensor(list(values), dtype=torch.int64) + 1
    return rows


class ByteEncoder(nn.Module):
    """Bytes ``[n, max_bytes]`` of caption fields to ``[n, tokens_per_field, width]``.

    The result is standardised over captions by running statistics: captions share most of their words, and without
    this what they share drowns what tells them apart, so that the world learns to do without them.
    """

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.bytes = nn.Embedding(257, width, padding_idx=PADDING)
        self.merge = nn.Conv1d(width, width, config.stride, config.stride)
        self.positions = nn.Parameter(torch.randn(config.max_bytes // config.stride, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, config.heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, config.depth, enable_nested_tensor=False)
        self.queries = nn.Parameter(torch.randn(config.tokens_per_field, width) * 0.2)
        self.pool = nn.MultiheadAttention(width, config.heads, batch_first=True)
        self.register_buffer("mean", torch.zeros(config.tokens_per_field, width))
        self.register_buffer("variance", torch.ones(config.tokens_per_field, width))

    def forward(self, codes: Tensor) -> Tensor:
        x = self.merge(self.bytes(codes).transpose(1, 2)).transpose(1, 2) + self.positions
        empty = codes.unflatten(1, (-1, self.config.stride)).eq(PADDING).all(-1)
        empty = torch.cat([torch.zeros_like(empty[:, :1]), empty[:, 1:]], dim=1)  # attention needs one key at least
        hide = torch.zeros(empty.shape, dtype=x.dtype, device=x.device).masked_fill(empty, float("-inf"))
        x = self.layers(x, src_key_padding_mask=hide)
        queries = self.queries.to(x.dtype).expand(len(codes), -1, -1)
        pooled = self.pool(queries, x, x, key_padding_mask=hide, need_weights=False)[0]
        tokens = (queries + pooled).float()
        if self.training and len(tokens) > 1:
            self.observe(tokens.detach())
        return ((tokens - self.mean) * (self.variance + EPS).rsqrt()).to(x.dtype)

    def observe(self, tokens: Tensor) -> None:
        """Move the statistics toward those of a batch of distinct captions ``[n, tokens_per_field, width]``."""
        variance, mean = torch.var_mean(tokens, dim=0)
        self.mean.lerp_(mean, STATISTICS_MOMENTUM)
        self.variance.lerp_(variance, STATISTICS_MOMENTUM)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts on the encoder's device: ``[n, tokens_per_field, width]``."""
        codes = to_bytes(texts, self.config.max_bytes).to(self.positions.device)
        return self(codes)
