"""Attention of queries to keys and values, in the form that is fastest where it runs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

HIDDEN = -1e4  # added to the score of a key that a query must not see: its weight underflows to exactly zero


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention ``[B, heads, N, head]``; ``mask`` is bool and broadcasts to ``[B, heads, N, M]``.

    Torch's fused kernel serves everything but training on a CPU: there its backward pass, in bf16, takes nearly three
    times as long as the plain products.
    """
    if query.device.type == "cpu" and torch.is_grad_enabled():
        return _plain(query, key, value, mask)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    batch, heads, length, head = query.shape
    shape = (batch * heads, length, key.shape[2])
    bias = query.new_zeros(1, 1, 1, 1) if mask is None else query.new_zeros(mask.shape).masked_fill(~mask, HIDDEN)
    bias = bias[0].expand(shape) if len(bias) == 1 else bias.expand(batch, heads, *shape[1:]).reshape(shape)
    query, key, value = (x.flatten(0, 1) for x in (query, key, value))
    weights = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=head**-0.5).softmax(dim=-1)
    return torch.bmm(weights, value).unflatten(0, (batch, heads))
