"""Attention of queries to keys and values, in the form that is fastest where it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128  # tokens, of FlexAttention's masks
HIDDEN = -1e4  # added to the score of a key that a query must not see: its weight underflows to exactly zero


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention ``[B, heads, N, head]``; ``mask`` is bool and broadcasts to ``[B, heads, N, M]``.

    Torch's fused kernel serves everything but training on a CPU, where its backward pass, in bf16, takes nearly three
    times as long as the plain products, and training on CUDA with the mask ``[N, M]`` of a layout (`masks.Layout`),
    where FlexAttention leaves out the blocks that nobody sees.
    """
    if torch.is_grad_enabled():
        if query.device.type == "cpu":
            return _plain(query, key, value, mask)
        if query.device.type == "cuda" and mask is not None and mask.ndim == 2:
            return sparse(query, key, value, mask, _compiled_kernel())
    mask = None if mask is None else mask.to(query.device)  # a layout's is kept on the CPU
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def sparse(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, kernel: Callable[..., Tensor]) -> Tensor:
    """The same with a layout's mask ``[N, N]`` by ``kernel``: `flex_attention`, compiled or not (then without
    gradients on a CPU).

    Sequences are padded to a multiple of a block, so that histories of any length need a handful of kernels.
    """
    length = query.shape[2]
    query, key, value = (functional.pad(x, (0, 0, 0, -length % BLOCK)) for x in (query, key, value))
    return kernel(query, key, value, block_mask=block_mask(mask, query.device))[:, :, :length]


@lru_cache(maxsize=128)  # as many as layouts are kept; by identity, as tensors hash, so a step's layers share one
def block_mask(mask: Tensor, device: torch.device) -> BlockMask:
    """FlexAttention's form of a mask ``[N, N]``: padded to whole blocks, and which blocks anybody sees at all.

    A padding token sees itself alone; one that saw nothing would become NaN.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    size = len(mask) + -len(mask) % BLOCK
    padded = torch.eye(size, dtype=torch.bool)
    padded[: len(mask), : len(mask)] = mask
    padded = padded.to(device)

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return padded[query, key]

    return create_block_mask(seen, None, None, size, size, device=device)


@lru_cache(maxsize=1)
def _compiled_kernel() -> Callable[..., Tensor]:
    """FlexAttention, compiled once for each number of blocks."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def _plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    batch, heads, length, head = query.shape
    shape = (batch * heads, length, key.shape[2])
    bias = query.new_zeros(1, 1, 1, 1) if mask is None else query.new_zeros(mask.shape).masked_fill(~mask, HIDDEN)
    bias = bias[0].expand(shape) if len(bias) == 1 else bias.expand(batch, heads, *shape[1:]).reshape(shape)
    query, key, value = (x.flatten(0, 1) for x in (query, key, value))
    weights = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=head**-0.5).softmax(dim=-1)
    return torch.bmm(weights, value).unflatten(0, (batch, heads))
