"""The velocity network: noisy latents and their context in, flow-matching velocities out."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from world_model.config import WorldConfig
from world_model.transformer.actions import ActionEmbedding
from world_model.transformer.block import EPS, Block, Conditioning, KeyValue
from world_model.transformer.rotary import rotary_table


class VelocityTransformer(nn.Module):
    """A diffusion transformer whose tokens may be target latents or any part of the context.

    The same weights serve the bidirectional model, the chunk-causal model under teacher forcing and the cached
    rollout: what differs is which tokens are in the sequence and who sees whom (`masks`).

    With ``recompute`` a backward pass finds only the blocks' inputs and runs each of them again: a third more work, and
    a fraction of the memory.
    """

    recompute = False

    def __init__(self, config: WorldConfig) -> None:
        super().__init__()
        sizes = config.transformer
        self.patch = sizes.patch
        self.channels = config.codec.latent_channels
        self.head_width = sizes.width // sizes.heads
        self.frequency_width = sizes.frequency_width
        self.patch_embedding = nn.Linear(self.channels * sizes.patch**2, sizes.width)
        self.time_embedding = nn.Sequential(
            nn.Linear(sizes.frequency_width, sizes.width), nn.SiLU(), nn.Linear(sizes.width, sizes.width)
        )
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(sizes.width, 6 * sizes.width))
        self.action_embedding = ActionEmbedding(sizes.width, sizes.action_widths, sizes.camera_scale)
        self.text_embedding = nn.Sequential(
            nn.Linear(config.text.width, sizes.width), nn.GELU("tanh"), nn.Linear(sizes.width, sizes.width)
        )
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads, sizes.ffn_width) for _ in range(sizes.depth))
        self.head_modulation = nn.Parameter(torch.zeros(2, sizes.width))
        self.head = nn.Linear(sizes.width, self.channels * sizes.patch**2)
        for layer in (self.time_projection[1], self.head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def block_matrices(self) -> list[nn.Parameter]:
        """The weights of the linear layers in the blocks: nearly all parameters of a large network."""
        return [layer.weight for layer in self.blocks.modules() if isinstance(layer, nn.Linear)]

    def embed_latents(self, latents: Tensor) -> Tensor:
        """Latents ``[B, T, C, h, w]`` to tokens ``[B, T * P, D]``, row by row within a latent."""
        p = self.patch
        patches = latents.unflatten(-1, (-1, p)).unflatten(-3, (-1, p))  # [B, T, C, rows, p, columns, p]
        patches = patches.permute(0, 1, 3, 5, 4, 6, 2).flatten(-3)  # channel fastest, as in the published layout
        return self.patch_embedding(patches.to(self.patch_embedding.weight.dtype)).flatten(1, 3)

    def condition(
        self, group: Tensor, levels: Tensor, actions: Tensor, caption: Tensor, active: Tensor
    ) -> Conditioning:
        """Embed what steers ``G`` groups of tokens.

        ``group [N]`` is the group of every token, ``levels [B, G]`` their noise levels in [0, 1], ``actions
        [B, G, 6]`` their action rows, ``caption [B, L, text width]`` caption tokens and ``active`` bool ``[B, G, L]``
        which of these are in force for a group.
        """
        time = self.time_embedding(self._frequencies(levels))
        modulation = self.time_projection(time).unflatten(-1, (6, -1))
        return Conditioning(
            group=group,
            time=time,
            modulation=modulation,
            action=self.action_embedding(actions),
            caption=self.text_embedding(caption),
            caption_mask=torch.index_select(active, 1, group)[:, None],
        )

    def forward(
        self,
        tokens: Tensor,
        given: Conditioning,
        positions: Tensor,
        mask: Tensor | None = None,
        context: list[KeyValue] | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Run all blocks over ``tokens [B, N, D]`` at ``positions [N, 3]`` or ``[B, N, 3]``.

        ``context`` holds one rotated `KeyValue` per block that the tokens see besides each other, with room for them
        at its end; ``mask`` is bool and broadcasts to ``[B, heads, N, context + N]``. Also returns each block's new
        unrotated keys and values, but where they will be computed again: there they would be most of the memory.
        """
        table = rotary_table(positions, self.head_width)
        if positions.ndim == 3:
            table = table[:, :, None]  # one table per batch element, shared by the heads
        kept = []
        again = self.recompute and torch.is_grad_enabled()
        for index, block in enumerate(self.blocks):
            run = partial(checkpoint, block, use_reentrant=False) if again else block
            tokens, new = run(tokens, given, table, mask, None if context is None else context[index])
            if not again:
                kept.append(new)
        return tokens, kept

    def velocity(self, tokens: Tensor, time: Tensor, grid: tuple[int, int]) -> Tensor:
        """Velocities, float32 ``[B, T, C, h, w]``, from tokens ``[B, T * P, D]`` of target latents and their noise
        embedding ``[B, T, D]``."""
        return self.to_latents(self.head(self.head_input(tokens, time)), grid)

    def head_input(self, tokens: Tensor, time: Tensor) -> Tensor:
        """Normalised and modulated tokens ``[B, T, P, D]``, see `velocity`."""
        shift, scale = (time[:, :, None, None] + self.head_modulation).unbind(3)
        tokens = tokens.unflatten(1, (time.shape[1], -1))
        return functional.layer_norm(tokens, tokens.shape[-1:], eps=EPS) * (1 + scale) + shift

    def to_latents(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        """Patches ``[B, T, P, p * p * C]`` put back in their places: float32 ``[B, T, C, h, w]``."""
        patches = patches.unflatten(-1, (self.patch, self.patch, self.channels))
        patches = patches.unflatten(2, grid)  # [B, T, rows, columns, p, p, C]
        return patches.permute(0, 1, 6, 2, 4, 3, 5).flatten(-2).flatten(-3, -2).float()

    def _frequencies(self, levels: Tensor) -> Tensor:
        half = self.frequency_width // 2
        rates = torch.exp(-math.log(10_000.0) * torch.arange(half, device=levels.device, dtype=torch.float32) / half)
        angles = 1000 * levels.float()[..., None] * rates
        return torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.head.weight.dtype)
