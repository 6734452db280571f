"""The published light VAE, whole and streaming, at narrow and at full width."""

from __future__ import annotations

import torch

from world_model.codec.light import LightCodec, LightCodecConfig, published_name
from world_model.large import load_light_codec


@torch.no_grad()
def test_golden_light_codec_whole_and_streaming(golden):
    given, notes = golden.tensors("g_tae"), golden.notes("g_tae")
    config = LightCodecConfig(encoder_width=notes["widths"]["enc"], decoder_widths=tuple(notes["widths"]["dec"]))
    codec = load_light_codec([golden.file("weights_tae_narrow.safetensors")], config)
    latents, pixels = golden.ours(given["in.latents"]), golden.ours(given["in.pixels"])
    golden.check(golden.theirs(codec.decode(latents)[0]), given["out.decode"], "decode")
    first, state = codec.decode(latents[:, :4])
    second, _ = codec.decode(latents[:, 4:], state)
    golden.check(golden.theirs(first), given["out.decode_chunk0"], "decode, chunk 0")
    golden.check(golden.theirs(second), given["out.decode_chunk1"], "decode, chunk 1")
    golden.check(golden.theirs(codec.encode(pixels)[0]), given["out.encode"], "encode")
    first, state = codec.encode(pixels[:, ::2])
    second, _ = codec.encode(pixels[:, :8], state)
    golden.check(golden.theirs(first), given["out.encode_chunk_7frames_first"], "encode, 7 frames")
    golden.check(golden.theirs(second), given["out.encode_chunk_8frames_next"], "encode, 8 frames more")


@torch.no_grad()
def test_golden_light_codec_at_full_width(golden):
    given, notes = golden.tensors("g2_tae_fullwidth"), golden.notes("g2_tae_fullwidth")
    codec = LightCodec()
    names = {name: published_name(name) for name in codec.state_dict()}
    assert {names[name]: list(value.shape) for name, value in codec.state_dict().items()} == notes["keys"]
    codec.load_state_dict(
        {
            name: golden.drawn(names[name], tuple(value.shape), notes["seed"], notes["gain"])
            for name, value in codec.state_dict().items()
        }
    )
    codec.decoder[22].weight *= 0.03125
    codec.decoder[22].bias += 0.5
    golden.check(golden.theirs(codec.decode(golden.ours(given["in.latents"]))[0]), given["out.decode"], "decode")
    golden.check(golden.theirs(codec.encode(golden.ours(given["in.pixels"]))[0]), given["out.encode"], "encode")
