"""The codec: piece by piece equals whole, and it is causal."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.codec import CausalCodec, to_uint8, to_unit
from world_model.config import TINY


def codec_of(factor):
    torch.manual_seed(0)
    codec = CausalCodec(replace(TINY.codec, temporal_factor=factor)).eval().requires_grad_(False)
    for parameter in codec.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    codec.latent_mean.fill_(0.3)
    codec.latent_std.fill_(1.7)
    return codec


@pytest.mark.parametrize("factor", [1, 4])
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_streaming_decode_equals_full_decode(factor, cuts):
    codec = codec_of(factor)
    latents = torch.randn(2, sum(cuts), 4, 4, 4, generator=torch.Generator().manual_seed(1))
    whole, _ = codec.decode(latents)
    parts, state, done = [], None, 0
    for cut in cuts:
        frames, state = codec.decode(latents[:, done : done + cut], state)
        parts.append(frames)
        done += cut
    assert whole.shape[1] == 1 + factor * (sum(cuts) - 1)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("factor", [1, 4])
def test_streaming_encode_equals_full_encode(factor):
    codec = codec_of(factor)
    frames = torch.randn(1, 1 + 3 * factor, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    whole = codec.encode(frames)
    parts = [codec.encode(frames[:, :1])] + [
        codec.encode(frames[:, 1 + i * factor : 1 + (i + 1) * factor], started=True) for i in range(3)
    ]
    assert whole.shape == (1, 4, 4, 4, 4)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("factor", [1, 4])
def test_no_frame_depends_on_a_later_latent(factor):
    codec = codec_of(factor)
    latents = torch.randn(1, 5, 4, 4, 4, generator=torch.Generator().manual_seed(2))
    changed = latents.clone()
    changed[:, 3:] += 1
    before, after = codec.decode(latents)[0], codec.decode(changed)[0]
    seen = 1 + 2 * factor
    torch.testing.assert_close(before[:, :seen], after[:, :seen])
    assert not torch.allclose(before[:, seen], after[:, seen])


def test_the_decoder_does_look_back():
    codec = codec_of(1)
    latents = torch.randn(1, 2, 4, 4, 4, generator=torch.Generator().manual_seed(2))
    assert not torch.allclose(codec.decode(latents)[0][:, 1], codec.decode(latents[:, 1:])[0][:, 0])


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="multiples of 8"):
        codec_of(1).encode(torch.zeros(1, 1, 3, 30, 32))
    with pytest.raises(ValueError, match="groups of 4"):
        codec_of(4).encode(torch.zeros(1, 3, 3, 32, 32))
    with pytest.raises(ValueError, match="temporal_factor is 2"):
        CausalCodec(replace(TINY.codec, temporal_factor=2))
    with pytest.raises(ValueError, match="spatial_factor is 16; the causal codec has 8"):
        CausalCodec(replace(TINY.codec, spatial_factor=16))


def test_uint8_survives_the_way_to_floats_and_back():
    frames = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(1, 16, 16, 3)
    assert torch.equal(to_uint8(to_unit(frames)), frames)
