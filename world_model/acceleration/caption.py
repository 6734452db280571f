"""Cached text: what cross-attention needs of a caption is computed when the caption changes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from world_model.transformer import Conditioning, KeyValue, VelocityTransformer
from world_model.transformer.block import Attention, Block


class CaptionReader(nn.Module):
    """Caption tokens ``[B, L, text width]`` to the keys and values that every block's cross-attention needs.

    The newest caption of each batch size is remembered with what was made of it. Whether it is still the same is seen
    from its numbers, so it may be changed in place.
    """

    def __init__(self, embedding: nn.Module, attentions: list[Attention]) -> None:
        super().__init__()
        self.embedding = embedding
        self.attentions = nn.ModuleList(attentions)
        self._read: dict[int, tuple[Tensor, list[KeyValue]]] = {}

    def forward(self, caption: Tensor) -> list[KeyValue]:
        known = self._read.get(len(caption))
        if known is None or not torch.equal(known[0], caption):
            self._read.pop(len(caption), None)  # room for what comes
            embedded = self.embedding(caption)
            pairs = [_keys_and_values(attention, embedded) for attention in self.attentions]
            known = self._read[len(caption)] = caption.clone(), pairs
        return known[1]


def _keys_and_values(attention: Attention, source: Tensor) -> KeyValue:
    """The half of `Attention.project` that depends on what is attended to."""
    key, value = attention.norm_k(attention.k(source)), attention.v(source)
    return KeyValue(attention.by_head(key), attention.by_head(value))


class ReadCrossAttention(Attention):
    """Cross-attention to a caption that a `CaptionReader` has read for it."""

    def __init__(self, attention: Attention) -> None:
        nn.Module.__init__(self)
        self.heads = attention.heads
        self.q, self.o, self.norm_q = attention.q, attention.o, attention.norm_q

    def forward(self, x: Tensor, caption: KeyValue, mask: Tensor | None) -> Tensor:
        return self.attend(self.by_head(self.norm_q(self.q(x))), *caption, mask)


class NumberedBlock(nn.Module):
    """A block that is given the caption's keys and values of all blocks and takes its own."""

    def __init__(self, block: Block, number: int) -> None:
        super().__init__()
        self.block = block
        self.number = number

    def forward(self, x: Tensor, given: Conditioning, *rest: object) -> tuple[Tensor, KeyValue]:
        return self.block(x, given._replace(caption=given.caption[self.number]), *rest)


def cache_text(network: VelocityTransformer) -> None:
    """Let a network read every caption once."""
    network.text_embedding = CaptionReader(network.text_embedding, [b.cross_attention for b in network.blocks])
    for block in network.blocks:
        block.cross_attention = ReadCrossAttention(block.cross_attention)
    network.blocks = nn.ModuleList(NumberedBlock(block, number) for number, block in enumerate(network.blocks))
