"""One Transformer block: self-attention, cross-attention to the caption, action residual, feed-forward."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.transformer.actions import ActionResidual
from world_model.transformer.attention import attention
from world_model.transformer.rotary import rotate

EPS = 1e-6


class Conditioning(NamedTuple):
    """What steers the tokens. A *group* is the set of tokens of one latent frame or one memory slot."""

    group: Tensor  # int64 [N], the group of every token
    time: Tensor  # [B, G, D], embedded noise level
    modulation: Tensor  # [B, G, 6, D], projected noise level
    action: Tensor | None  # [B, G, D], embedded action row (Eq. 1); None runs the blocks without Eq. 2
    caption: Tensor  # [B, L, D], caption tokens
    caption_mask: Tensor | None  # bool [B, 1, N, L], which caption tokens are in force for a token; None: all


class KeyValue(NamedTuple):
    """Keys and values ``[B, heads, N, head]``; cached keys are stored unrotated, see `rollout`."""

    key: Tensor
    value: Tensor


class QueryKeyNorm(nn.RMSNorm):
    """RMS normalisation in the input's precision, so that the fused kernel serves bf16 autocast too."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Projections to heads, with queries and keys normalised over the full width before the split."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.norm_q, self.norm_k = QueryKeyNorm(width, eps=EPS), QueryKeyNorm(width, eps=EPS)

    def project(self, x: Tensor, source: Tensor) -> tuple[Tensor, KeyValue]:
        """Queries of ``x`` and keys and values of ``source``, ``[B, heads, N, head]`` each."""
        return self.split(self.q(x), self.k(source), self.v(source))

    def split(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, KeyValue]:
        """Projections ``[B, N, D]``, normalised and split to heads."""
        query, key, value = (self.by_head(y) for y in (self.norm_q(query), self.norm_k(key), value))
        return query, KeyValue(key, value)

    def by_head(self, x: Tensor) -> Tensor:
        """Tokens ``[B, N, D]`` as ``[B, heads, N, head]``."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attention output ``[B, N, D]``; queries and keys were normalised and rotated in higher precision."""
        attended = attention(query.to(value.dtype), key.to(value.dtype), value, mask)
        return self.o(attended.transpose(1, 2).flatten(2))


class SelfAttention(Attention):
    """Attention over ``[context, tokens]`` with rotary positions."""

    def forward(
        self, x: Tensor, table: Tensor, mask: Tensor | None, context: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Attend from ``x [B, N, D]`` to a rotated ``context`` and itself; also gives the new unrotated keys.

        The context ends with room for ``N`` tokens, which is overwritten: nothing is copied but the new tokens. Where
        gradients are wanted it is copied, since what a backward pass needs must stay.
        """
        query, new = self.project(x, x)
        key, value = rotate(new.key, table), new.value
        if context is not None and torch.is_grad_enabled():
            past = -x.shape[1]
            key = torch.cat([context.key[:, :, :past], key], dim=2)
            value = torch.cat([context.value[:, :, :past], value], dim=2)
        elif context is not None:
            context.key[:, :, -x.shape[1] :] = key
            context.value[:, :, -x.shape[1] :] = value
            key, value = context
        return self.attend(rotate(query, table), key, value, mask), new


class CrossAttention(Attention):
    """Attention from tokens to the caption fields in force."""

    def forward(self, x: Tensor, caption: Tensor, mask: Tensor | None) -> Tensor:
        query, (key, value) = self.project(x, caption)
        return self.attend(query, key, value, mask)


class Block(nn.Module):
    """The order is that of the public Wan models, with the action residual right before the feed-forward (Eq. 2)."""

    def __init__(self, width: int, heads: int, ffn_width: int) -> None:
        super().__init__()
        self.width = width
        self.modulation = nn.Parameter(torch.zeros(6, width))
        self.self_attention = SelfAttention(width, heads)
        self.cross_norm = nn.LayerNorm(width, eps=EPS)
        self.cross_attention = CrossAttention(width, heads)
        self.action = ActionResidual(width)
        self.ffn = nn.Sequential(nn.Linear(width, ffn_width), nn.GELU("tanh"), nn.Linear(ffn_width, width))
        with torch.no_grad():
            self.modulation[2].fill_(1.0)  # open gates; the branches themselves start at zero
            self.modulation[5].fill_(1.0)
        for branch in (self.self_attention.o, self.cross_attention.o, self.ffn[2]):
            nn.init.zeros_(branch.weight)
            nn.init.zeros_(branch.bias)

    def forward(
        self, x: Tensor, given: Conditioning, table: Tensor, mask: Tensor | None, context: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Tokens ``x [B, N, D]`` to tokens, and the keys and values that a cache may keep."""
        of_groups = (given.modulation + self.modulation).to(given.modulation.dtype)  # bf16 under autocast
        modulation = torch.index_select(of_groups, 1, given.group)
        shift, scale, gate, ffn_shift, ffn_scale, ffn_gate = modulation.unbind(2)
        attended, new = self.self_attention(self._modulated(x, shift, scale), table, mask, context)
        x = torch.addcmul(x, attended, gate)
        x = x + self.cross_attention(self.cross_norm(x), given.caption, given.caption_mask)
        if given.action is not None:
            x = self.action(x, given.action, given.group)
        x = torch.addcmul(x, self.ffn(self._modulated(x, ffn_shift, ffn_scale)), ffn_gate)
        return x, new

    def _modulated(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Normalised tokens, scaled and shifted in the precision of the modulation."""
        return torch.addcmul(shift, functional.layer_norm(x, (self.width,), eps=EPS).to(shift.dtype), 1 + scale)
