"""The light codec of the large worlds."""

from __future__ import annotations

import torch

from world_model.codec.light import LightCodec, LightCodecConfig

SMALL = LightCodecConfig(latent_channels=4, encoder_width=8, decoder_widths=(8, 8, 8, 8), blocks=1)


@torch.no_grad()
def test_decoding_latent_by_latent_equals_decoding_at_once():
    codec, latents, state = LightCodec(SMALL), torch.randn(2, 5, 4, 2, 3), None
    frames = []
    for latent in latents.split(1, dim=1):
        some, state = codec.decode(latent, state)
        frames.append(some)
    assert [some.shape[1] for some in frames] == [1, 4, 4, 4, 4]
    torch.testing.assert_close(torch.cat(frames, dim=1), codec.decode(latents)[0], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_frames_are_coded_by_fours_after_the_first():
    codec, frames = LightCodec(SMALL), torch.rand(1, 13, 3, 16, 24) * 2 - 1
    whole, _ = codec.encode(frames)
    assert whole.shape == (1, 4, 4, 2, 3)
    first, state = codec.encode(frames[:, :5])
    rest, _ = codec.encode(frames[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole, rtol=1e-4, atol=1e-5)
    decoded, _ = codec.decode(whole)
    assert decoded.shape == frames.shape and decoded.abs().max() <= 1
