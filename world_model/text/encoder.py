"""A byte-level caption encoder, trained with the world: one pass per caption field, no vocabulary, any language."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.config import TextConfig
from world_model.controls import StructuredCaption

PADDING = 0  # bytes are stored plus one
STATISTICS_MOMENTUM = 0.05


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


class CaptionNorm(nn.BatchNorm1d):
    """Features ``[n, width]`` standardised over captions.

    Captions share most of their words; without this, what they share drowns what tells them apart, and the world
    learns to do without them. A rollout uses the statistics of training, so a caption never depends on others.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6, momentum=STATISTICS_MOMENTUM, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        several = self.training and len(x) > 1  # one caption has no spread of its own
        return functional.batch_norm(
            x.float(), self.running_mean, self.running_var, training=several, momentum=self.momentum, eps=self.eps
        )


class ByteEncoder(nn.Module):
    """Bytes ``[n, max_bytes]`` of caption fields to ``[n, tokens_per_field, width]``, standardised over captions."""

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
        self.standardise = CaptionNorm(config.tokens_per_field * width)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.merge(self.bytes(codes).transpose(1, 2)).transpose(1, 2) + self.positions
        empty = codes.unflatten(1, (-1, self.config.stride)).eq(PADDING).all(-1)
        empty = torch.cat([torch.zeros_like(empty[:, :1]), empty[:, 1:]], dim=1)  # attention needs one key at least
        hide = torch.zeros(empty.shape, dtype=x.dtype, device=x.device).masked_fill(empty, float("-inf"))
        x = self.layers(x, src_key_padding_mask=hide)
        queries = self.queries.to(x.dtype).expand(len(codes), -1, -1)
        pooled = self.pool(queries, x, x, key_padding_mask=hide, need_weights=False)[0]
        return self.standardise((queries + pooled).flatten(1)).unflatten(1, (len(self.queries), -1)).to(x.dtype)

    def train(self, mode: bool = True) -> ByteEncoder:
        """A frozen encoder stays as it is in a rollout: it keeps the statistics of the training before."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts on the encoder's device: ``[n, tokens_per_field, width]``."""
        codes = to_bytes(texts, self.config.max_bytes).to(self.positions.device)
        return self(codes)
