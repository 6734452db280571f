"""The Wan video autoencoders (diffusers' `AutoencoderKLWan`) as a codec that works piece by piece.

4x in time; 8x in space with 16 channels (Wan2.1) or 16x with 48 (Wan2.2 of 5 billion parameters); the first latent is
one frame. Needs the extra ``large``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from diffusers import AutoencoderKLWan

State = list[Any]  # the features that each causal convolution keeps
GROUP = 4  # frames per latent after the first
RENAMES = (  # pattern of diffusers' name, the one in the original Wan2.1_VAE file
    (r"quant_conv\.(.*)", r"conv1.\1"),
    (r"post_quant_conv\.(.*)", r"conv2.\1"),
    (r"(.*)\.conv_in\.(.*)", r"\1.conv1.\2"),
    (r"(.*)\.norm_out\.(.*)", r"\1.head.0.\2"),
    (r"(.*)\.conv_out\.(.*)", r"\1.head.2.\2"),
    (r"(.*)\.mid_block\.resnets\.0\.(.*)", r"\1.middle.0.\2"),
    (r"(.*)\.mid_block\.attentions\.0\.(.*)", r"\1.middle.1.\2"),
    (r"(.*)\.mid_block\.resnets\.1\.(.*)", r"\1.middle.2.\2"),
    (r"encoder\.down_blocks\.(.*)", r"encoder.downsamples.\1"),
)
INNER = {"norm1": "residual.0", "conv1": "residual.2", "norm2": "residual.3", "conv2": "residual.6"}


class WanCodec(nn.Module):
    """Frames ``[B, F, 3, H, W]`` in [-1, 1] to normalised latents ``[B, T, C, H / s, W / s]`` and back.

    Both directions take and return a state; passing None starts a new video. At the start of a video ``1 + 4 k``
    frames make ``1 + k`` latents, later ``4 k`` make ``k``; frames that fill no group are left out, as in the
    published rollout, whose first small chunk has 7 frames of which 5 count.
    """

    def __init__(self, vae: AutoencoderKLWan) -> None:
        super().__init__()
        self.vae = vae
        self.patch = vae.config.patch_size or 1  # pixels that the newer autoencoder folds into channels first
        for name in ("mean", "std"):
            values = torch.tensor(vae.config[f"latents_{name}"], device=vae.device).view(1, -1, 1, 1, 1)
            self.register_buffer(f"latent_{name}", values, persistent=False)

    @classmethod
    def from_pretrained(cls, name_or_path: str, **options: Any) -> WanCodec:
        """From a folder or hub id in diffusers' format (``subfolder="vae"`` inside a pipeline)."""
        from diffusers import AutoencoderKLWan

        options = {"use_safetensors": True, **options}  # never a pickle
        return cls(AutoencoderKLWan.from_pretrained(name_or_path, **options).eval().requires_grad_(False))

    def encode(self, frames: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Latents of frames, and the state for the frames after them."""
        cache = self._cache("encoder") if state is None else list(state)
        x = patchify(frames.transpose(1, 2).to(self.vae.dtype), self.patch)
        start = 1 if state is None else 0
        ends = [*range(start, x.shape[2] + 1, GROUP)] if start else [*range(GROUP, x.shape[2] + 1, GROUP)]
        raw = [self.vae.encoder(x[:, :, max(0, end - GROUP) : end], feat_cache=cache, feat_idx=[0]) for end in ends]
        mean = self.vae.quant_conv(torch.cat(raw, dim=2)).chunk(2, dim=1)[0].float()
        return ((mean - self.latent_mean) / self.latent_std).transpose(1, 2), cache

    def decode(self, latents: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Frames of latents, and the state for the latents after them."""
        cache = self._cache("decoder") if state is None else list(state)
        raw = latents.transpose(1, 2) * self.latent_std + self.latent_mean
        x = self.vae.post_quant_conv(raw.to(self.vae.dtype))
        frames = [
            self.vae.decoder(part, feat_cache=cache, feat_idx=[0], first_chunk=state is None and index == 0)
            for index, part in enumerate(x.split(1, dim=2))
        ]
        whole = unpatchify(torch.cat(frames, dim=2), self.patch)
        return whole.float().clamp(-1, 1).transpose(1, 2), cache

    def _cache(self, part: str) -> State:
        return [None] * self.vae._cached_conv_counts[part]


def patchify(frames: Tensor, patch: int) -> Tensor:
    """Fold ``[B, C, F, H, W]`` to ``[B, C * p * p, F, H / p, W / p]``: channel, then column and row in the patch."""
    cells = frames.unflatten(-1, (-1, patch)).unflatten(-3, (-1, patch))  # [B, C, F, rows, p, columns, p]
    return cells.permute(0, 1, 6, 4, 2, 3, 5).flatten(1, 3)


def unpatchify(frames: Tensor, patch: int) -> Tensor:
    """The inverse of `patchify`."""
    cells = frames.unflatten(1, (-1, patch, patch))  # [B, C, column in the patch, row in the patch, F, rows, columns]
    return cells.permute(0, 1, 4, 5, 3, 6, 2).flatten(5, 6).flatten(3, 4)


def original_name(name: str, residual_blocks: int) -> str:
    """The name in the original Wan2.1_VAE file of a tensor of diffusers' model."""
    head, _, tail = name.partition(".up_blocks.")
    if tail:  # blocks of resnets and an upsampler, which the original numbers through
        block, kind, index, rest = tail.split(".", 3)
        place = int(block) * (residual_blocks + 2) + (int(index) if kind == "resnets" else residual_blocks + 1)
        name = f"{head}.upsamples.{place}.{rest}"
    for pattern, replacement in RENAMES:
        if match := re.fullmatch(pattern, name):
            name = match.expand(replacement)
            break
    if re.match(r"(encoder|decoder)\.(downsamples|upsamples|middle)\.", name):
        parts = name.split(".")
        parts[3] = INNER.get(parts[3], "shortcut" if parts[3] == "conv_shortcut" else parts[3])
        name = ".".join(parts)
    return name
