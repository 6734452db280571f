"""Stage 1: the codec learns to reconstruct recorded frames.

`DecoderStage` goes on with the decoder alone, at any later time: the latents that other stages learned from stay.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from world_model.codec import CausalCodec, to_unit
from world_model.config import TrainingConfig
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore
from world_model.training.processes import rows_of_all
from world_model.training.stage import Stage

KL_WEIGHT = 5e-5  # light: latents stay bounded and a little smooth, reconstruction keeps the say
GRADIENT_WEIGHT = 0.25  # edges; a plain L1 blurs them
SQUARE_WEIGHT = 6.0  # what PSNR measures
STATISTICS_MOMENTUM = 0.01
ENCODER = ("encoder_", "gather", "to_moments")  # parameters that the decoder stage leaves alone


class CodecStage(Stage):
    """Reconstruction of windows of frames: L1 + squared error + edges + a light KL term."""

    name = "codec"

    def __init__(self, codec: CausalCodec, store: ClipStore | JoinedStore, config: TrainingConfig) -> None:
        super().__init__()
        self.codec = codec
        self.store = store
        self.config = config

    def weights(self) -> dict[str, Tensor]:
        """The codec's tensors, named as in a world."""
        return {f"codec.{name}": value for name, value in self.codec.state_dict(keep_vars=True).items()}

    def batch(self, generator: torch.Generator, step: int) -> dict[str, Tensor]:
        """``frames`` uint8 ``[B, F, H, W, 3]`` and the ``noise`` of the latents' sampling."""
        size = self.config.frames
        windows = []
        for index in torch.randint(len(self.store), (self.config.batch,), generator=generator).tolist():
            room = self.store.length(index) - size + 1
            start = int(torch.randint(room, (), generator=generator))
            windows.append(torch.from_numpy(self.store.window(index, start, size).frames.copy()))
        frames = torch.stack(windows)
        batch, _, height, width, _ = frames.shape
        latents = 1 + (size - 1) // self.codec.temporal_factor
        shape = (batch, latents, self.codec.config.latent_channels, height // 8, width // 8)
        return {"frames": frames, "noise": torch.randn(shape, generator=generator)}

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        frames = to_unit(batch["frames"])
        mean, log_variance = self.codec.moments(frames)
        if self.training:
            self.codec.observe(rows_of_all(mean.detach()), STATISTICS_MOMENTUM)
        decoded, _ = self.codec.decode_raw(mean + (0.5 * log_variance).exp() * batch["noise"])
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
        loss = reconstruction_loss(decoded, frames) + KL_WEIGHT * kl
        return loss, {"psnr": psnr(decoded.detach(), frames), "kl": kl.detach()}


class DecoderStage(CodecStage):
    """Reconstruction from latents that stay as they are: without their sampling noise, the encoder frozen."""

    name = "decoder"

    def __init__(self, codec: CausalCodec, store: ClipStore | JoinedStore, config: TrainingConfig) -> None:
        super().__init__(codec, store, config)
        for name, parameter in codec.named_parameters():
            parameter.requires_grad_(not name.startswith(ENCODER))

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        frames = to_unit(batch["frames"])
        with torch.no_grad():
            mean, _ = self.codec.moments(frames)
        decoded, _ = self.codec.decode_raw(mean)
        return reconstruction_loss(decoded, frames), {"psnr": psnr(decoded.detach(), frames)}


def reconstruction_loss(decoded: Tensor, frames: Tensor) -> Tensor:
    """L1, squared error and edges of two videos ``[B, F, 3, H, W]`` in [-1, 1]."""
    error = decoded - frames
    edges = _gradients(decoded, frames)
    return error.abs().mean() + SQUARE_WEIGHT * error.square().mean() + GRADIENT_WEIGHT * edges


def psnr(decoded: Tensor, frames: Tensor) -> Tensor:
    """Mean over frames of the peak signal-to-noise ratio in dB; the peak of [-1, 1] is 2."""
    per_frame = (decoded - frames).square().mean(dim=(2, 3, 4)) / 4
    return -10 * per_frame.clamp_min(1e-10).log10().mean()


def _gradients(a: Tensor, b: Tensor) -> Tensor:
    """L1 distance of the horizontal and vertical differences of two videos."""
    return functional.l1_loss(a.diff(dim=-1), b.diff(dim=-1)) + functional.l1_loss(a.diff(dim=-2), b.diff(dim=-2))
