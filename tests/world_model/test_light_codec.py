"""The light codec of the large worlds."""

from __future__ import annotations

import torch
from safetensors.torch import save_file

from world_model.codec.light import LightCodec, LightCodecConfig, published_name
from world_model.large.companions import open_codec

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


@torch.no_grad()
def test_its_published_file_stands_in_for_the_autoencoder_of_a_world(tmp_path):
    codec, latents = LightCodec().eval(), torch.randn(1, 2, 16, 1, 1)
    named = {published_name(name): value for name, value in codec.state_dict().items()}
    save_file(named, tmp_path / "light.safetensors")
    opened = open_codec(tmp_path / "light.safetensors", torch.device("cpu"))
    assert isinstance(opened, LightCodec)
    torch.testing.assert_close(opened.decode(latents)[0], codec.decode(latents)[0])
