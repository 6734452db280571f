"""The Wan autoencoder, whole and streaming. Needs the extra ``large``."""

from __future__ import annotations

import torch


@torch.no_grad()
def test_golden_wan_codec_whole_and_streaming(golden, wan_codec):
    given = golden.tensors("h_wan_vae")
    latents, pixels = golden.ours(given["in.latents"]), golden.ours(given["in.pixels"])
    golden.check(golden.theirs(wan_codec.decode(latents)[0]), given["out.decode"], "decode")
    first, state = wan_codec.decode(latents[:, :4])
    second, _ = wan_codec.decode(latents[:, 4:], state)
    golden.check(golden.theirs(first), given["out.decode_chunk0"], "decode, chunk 0")
    golden.check(golden.theirs(second), given["out.decode_chunk1"], "decode, chunk 1")
    golden.check(golden.theirs(wan_codec.encode(pixels)[0]), given["out.encode"], "encode")
    first, state = wan_codec.encode(pixels[:, ::2])
    second, _ = wan_codec.encode(pixels[:, :8], state)
    golden.check(golden.theirs(first), given["out.encode_chunk_7frames_first"], "encode, 7 frames")
    golden.check(golden.theirs(second), given["out.encode_chunk_8frames_next"], "encode, 8 frames more")
