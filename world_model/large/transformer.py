"""The velocity network as the published weights want it: the start picture beside every latent, exact timesteps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.controls import LONGITUDINAL
from world_model.large.config import LargeConfig
from world_model.large.few_step import IntervalHeads, calls_of
from world_model.transformer import Conditioning, VelocityTransformer
from world_model.transformer.actions import ActionEmbedding

TIMESTEPS = 1000  # the network is told 1000 times the noise level


class TruncatedActionEmbedding(ActionEmbedding):
    """Eq. 1 with discrete columns cut toward zero, where ours rounds them; whole numbers are the same in both."""

    def forward(self, rows: Tensor) -> Tensor:
        camera, discrete = rows.split((LONGITUDINAL, rows.shape[-1] - LONGITUDINAL), dim=-1)
        return super().forward(torch.cat([camera, discrete.trunc()], dim=-1))


class LargeTransformer(VelocityTransformer):
    """`VelocityTransformer` over latents with conditioning channels, ``[B, T, 16 + 20, h, w]``.

    With ``few_step`` the head is that of the published 4-step model, see `few_step`.
    """

    def __init__(self, config: LargeConfig, few_step: bool = False) -> None:
        super().__init__(config.world)
        sizes = config.world.transformer
        self.text_tokens = config.text_tokens
        self.patch_embedding = nn.Linear(config.input_channels * sizes.patch**2, sizes.width)
        self.action_embedding = TruncatedActionEmbedding(sizes.width, sizes.action_widths, sizes.camera_scale)
        if few_step:
            calls = len(calls_of(config)) // len(config.experts)
            self.head = IntervalHeads(sizes.width, self.channels * sizes.patch**2, calls)

    def steer(self, group: Tensor, timesteps: Tensor, rows: Tensor | None, text: Tensor) -> Conditioning:
        """`condition` in the published units.

        ``group [N]``, ``timesteps [B, G]`` from 0 (clean) to 1000 (noise), action ``rows [B, G, 6]`` in degrees (None:
        a network without controls), ``text [B, L, X]`` of at most ``text_tokens`` rows; the missing ones are zero
        *before* the text layers and are attended like the others.
        """
        text = functional.pad(text, (0, 0, 0, self.text_tokens - text.shape[1])).to(self.patch_embedding.weight.dtype)
        levels = timesteps.double() / TIMESTEPS
        some = timesteps.new_zeros(*timesteps.shape, 6) if rows is None else rows
        given = self.condition(group, levels, some, text, torch.ones_like(levels[..., None], dtype=torch.bool))
        return given._replace(action=None if rows is None else given.action, caption_mask=None)

    def estimates(self, tokens: Tensor, time: Tensor, grid: tuple[int, int], call: int) -> tuple[Tensor, Tensor]:
        """Displacement and endpoint velocity ``[B, T, C, h, w]`` of this expert's ``call``-th few-step evaluation."""
        both = self.head(self.head_input(tokens, time), call)
        displacement, endpoint = (self.to_latents(patches, grid) for patches in both.chunk(2, dim=-1))
        return displacement, endpoint

    def _frequencies(self, levels: Tensor) -> Tensor:
        """Noise features in float64: at timestep 1000 the fastest angle loses four digits in float32."""
        half = self.frequency_width // 2
        rates = 10_000.0 ** (-torch.arange(half, device=levels.device, dtype=torch.float64) / half)
        angles = TIMESTEPS * levels.double()[..., None] * rates
        return torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.patch_embedding.weight.dtype)
