"""A codec that sees one tile of a video at a time, so that its features are never larger than those of a tile.

Tiles overlap, and where they do their results are blended linearly; every tile has a state of its own, so pieces of a
video follow each other as without tiles. Layers that look at the whole picture, such as attention, see a tile alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from world_model.large.conditioning import StreamingCodec

OVERLAP = 4  # a tile shares a quarter of its side with the next one

Coder = Callable[[Tensor, list | None], tuple[Tensor, list]]


class TiledCodec:
    """``codec`` on tiles of at most ``tile`` pixels a side; ``factor`` pixels a side make one of a latent.

    Raises:
        ValueError: when tiles or their overlaps are no whole number of latent pixels.
    """

    def __init__(self, codec: StreamingCodec, tile: int, factor: int) -> None:
        if tile < 1 or tile % (OVERLAP * factor):
            low = max(1, tile // (OVERLAP * factor)) * OVERLAP * factor
            raise ValueError(f"tiles have {tile} pixels a side; give a multiple of {OVERLAP * factor}, such as {low}")
        self.codec, self.tile, self.factor = codec, tile, factor

    def encode(self, frames: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        """Latents of frames ``[B, F, 3, H, W]``, and the state for the frames after them."""
        return _by_tiles(self.codec.encode, frames, state, self.tile, lambda place: place // self.factor)

    def decode(self, latents: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        """Frames of latents ``[B, T, C, h, w]``, and the state for the latents after them."""
        return _by_tiles(self.codec.decode, latents, state, self.tile // self.factor, lambda place: place * self.factor)


def _by_tiles(
    coder: Coder, whole: Tensor, state: list | None, tile: int, there: Callable[[int], int]
) -> tuple[Tensor, list]:
    """Code every tile and blend the results; ``there`` gives the place in them of a place in ``whole``."""
    height, width = whole.shape[-2:]
    tiles = [(rows, columns) for rows in _spans(height, tile) for columns in _spans(width, tile)]
    states = state or [None] * len(tiles)
    total = weights = None
    kept = []
    for (rows, columns), past in zip(tiles, states, strict=True):
        part, now = coder(whole[..., rows[0] : rows[1], columns[0] : columns[1]], past)
        kept.append(now)
        if total is None:
            total = part.new_zeros(*part.shape[:-2], there(height), there(width), dtype=torch.float32)
            weights = total.new_zeros(total.shape[-2:])
        (top, bottom), (left, right) = ([there(place) for place in span] for span in (rows, columns))
        down, across = _ramp(top, bottom, there(height), there(tile)), _ramp(left, right, there(width), there(tile))
        weight = torch.outer(down, across).to(total)
        total[..., top:bottom, left:right] += weight * part
        weights[top:bottom, left:right] += weight
    return (total / weights).to(part.dtype), kept


def _spans(size: int, tile: int) -> Iterator[tuple[int, int]]:
    """First and last place (not included) of each tile along one axis; the last tile ends where the axis does."""
    start, step = 0, tile - tile // OVERLAP
    while start + tile < size:
        yield start, start + tile
        start += step
    yield max(0, size - tile), size


def _ramp(start: int, end: int, size: int, tile: int) -> Tensor:
    """Weights along one axis: 1 inside, and falling towards ends that another tile goes on from."""
    places, ones = torch.arange(end - start) + 0.5, torch.ones(end - start)
    rise, fall = places / (tile // OVERLAP), (end - start - places) / (tile // OVERLAP)
    return torch.minimum(rise if start else ones, fall if end < size else ones).clamp_max(1)
