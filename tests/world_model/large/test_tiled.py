"""Tiles change what a codec sees at once, not what comes of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.codec.light import LightCodec, LightCodecConfig
from world_model.large.tiled import TiledCodec

SMALL = LightCodecConfig(latent_channels=4, encoder_width=8, decoder_widths=(8, 8, 8, 8), blocks=1)
FACTOR = 8


class Means:
    """Means of patches, summed over the frames so far: no patch knows another, and a state is needed."""

    def __init__(self) -> None:
        self.largest = 0

    def encode(self, frames, state=None):
        self.largest = max(self.largest, *frames.shape[-2:])
        return self._summed(frames.unflatten(-1, (-1, FACTOR)).unflatten(-3, (-1, FACTOR)).mean((-3, -1)), state)

    def decode(self, latents, state=None):
        self.largest = max(self.largest, *(FACTOR * size for size in latents.shape[-2:]))
        return self._summed(latents.repeat_interleave(FACTOR, -1).repeat_interleave(FACTOR, -2), state)

    def _summed(self, x, state):
        x = x.cumsum(1) + (state[0] if state else 0)
        return x, [x[:, -1:]]


@settings(deadline=None)
@given(rows=st.integers(1, 20), columns=st.integers(1, 20), tile=st.sampled_from([32, 64, 96]))
def test_a_codec_without_neighbours_does_the_same_tile_by_tile(rows, columns, tile):
    whole, inner = Means(), Means()
    tiled = TiledCodec(inner, tile, FACTOR)
    frames = torch.rand(1, 4, 3, FACTOR * rows, FACTOR * columns, generator=torch.Generator().manual_seed(rows))
    first, state = tiled.encode(frames[:, :1])
    latents = torch.cat([first, tiled.encode(frames[:, 1:], state)[0]], dim=1)
    torch.testing.assert_close(latents, whole.encode(frames)[0])
    first, state = tiled.decode(latents[:, :2])
    again = torch.cat([first, tiled.decode(latents[:, 2:], state)[0]], dim=1)
    torch.testing.assert_close(again, whole.decode(latents)[0])
    assert inner.largest <= tile


@pytest.fixture
def light():
    torch.manual_seed(0)
    return LightCodec(SMALL).eval().requires_grad_(False)


def test_a_video_of_one_tile_is_coded_as_without(light):
    frames, tiled = torch.rand(1, 5, 3, 32, 32) * 2 - 1, TiledCodec(light, 32, FACTOR)
    latents = tiled.encode(frames)[0]
    torch.testing.assert_close(latents, light.encode(frames)[0])
    torch.testing.assert_close(tiled.decode(latents)[0], light.decode(latents)[0])


def test_far_from_their_edges_tiles_show_what_the_whole_shows(light):
    latents = torch.randn(1, 2, 4, 8, 40)
    whole, tiled = light.decode(latents)[0], TiledCodec(light, 256, FACTOR).decode(latents)[0]
    assert tiled.shape == whole.shape
    torch.testing.assert_close(tiled[..., :64], whole[..., :64])
    assert not torch.equal(tiled, whole)


@pytest.mark.parametrize("tile", [0, 8, 100, -32])
def test_tiles_that_do_not_divide_are_refused(tile):
    with pytest.raises(ValueError, match=f"tiles have {tile} pixels a side; give a multiple of 32"):
        TiledCodec(Means(), tile, FACTOR)
