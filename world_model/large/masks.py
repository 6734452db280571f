"""Who sees whom when a large world learns, and where its tokens stand in time: the twin of `transformer.masks`.

A sequence is ``[sink | compressed | adjacent | targets]`` there as here, and one masked pass over many chunks equals
generating them one after the other (`context`). What differs is the published memory: the first chunk is as long as the
others and begins with the start picture; compressed frame ``j`` covers latents ``2 j`` and ``2 j + 1``, stands at the
first of them, and sees the other frame of its group; nothing is ever forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from world_model.config import WorldConfig
from world_model.large.compressor import TEMPORAL_STRIDE
from world_model.large.context import FRAMES_PER_GROUP
from world_model.transformer.masks import CLEAN, NOISY, SINK, SLOT, Layout, Sees, build_layout


def chunk_of(latent: int, chunk_latents: int) -> int:
    """The chunk that a latent belongs to."""
    return latent // chunk_latents


def first_of(chunk: int, chunk_latents: int) -> int:
    """The first latent of a chunk."""
    return chunk * chunk_latents


def stored_latents(config: WorldConfig, latents: int) -> list[int]:
    """Which of a history of so many latents its compressed memory holds, besides the start picture's."""
    return list(range(1, latents // TEMPORAL_STRIDE * TEMPORAL_STRIDE))


@lru_cache(maxsize=128)
def teacher_forcing(config: WorldConfig, latents: int, first_target: int) -> Layout:
    """Chunk-causal targets: of ``latents`` consecutive latents those from ``first_target`` on, which begins a chunk,
    are generated."""
    n, window = config.chunk_latents, config.memory.adjacent_latents
    chunks = range(chunk_of(first_target, n), chunk_of(latents - 1, n) + 1)
    frames = range(first_of(chunks[-1], n) // TEMPORAL_STRIDE)
    starts = [first_of(chunk, n) for chunk in chunks if chunk]
    adjacent = tuple(latent for start in starts for latent in range(max(0, start - window), start))

    def chunk_after(frame: int) -> int:
        """The first chunk that finds a compressed frame in its memory."""
        return chunk_of(TEMPORAL_STRIDE * (frame + 1) - 1, n) + 1

    def sees(query: tuple[str, int], key: tuple[str, int]) -> bool:
        (kind, index), (other, place) = query, key
        if kind == SINK or other == SINK:
            return other == SINK and (kind != NOISY or index >= n)
        if kind == SLOT:
            return other == SLOT and _group(place) <= _group(index) and chunk_after(place) <= chunk_after(index)
        chunk = chunk_of(index, n) + (kind == CLEAN)  # a clean latent is the memory of the chunk after its own
        if other == SLOT:
            return chunk_after(place) <= chunk
        return chunk_of(place, n) + (other == CLEAN) == chunk and (kind == NOISY or other == CLEAN)

    return _layout(config, frames, adjacent, tuple(range(first_target, latents)), sees)


@lru_cache(maxsize=128)
def bidirectional(config: WorldConfig, latents: int, first_target: int) -> Layout:
    """A clip, the latents from ``first_target`` on, that all see each other and their memory, and their memory them."""
    frames = range(first_target // TEMPORAL_STRIDE)
    adjacent = tuple(range(max(0, first_target - config.memory.adjacent_latents), first_target))

    def sees(query: tuple[str, int], key: tuple[str, int]) -> bool:
        return bool(first_target) or SINK not in (query[0], key[0]) or query == key  # nothing is before the first clip

    layout = _layout(config, frames, adjacent, tuple(range(first_target, latents)), sees)
    return replace(layout, allowed=None) if first_target else layout


def frame_query(config: WorldConfig, latents: int, queried: tuple[int, ...]) -> Layout:
    """Targets that see the sink, every compressed frame of ``latents`` latents, and nothing else but themselves."""

    def sees(query: tuple[str, int], key: tuple[str, int]) -> bool:
        (kind, index), (other, place) = query, key
        if kind == SLOT and other == SLOT:
            return _group(place) <= _group(index)
        return other == SINK or (kind == NOISY and other == SLOT) or query == key

    return _layout(config, range(latents // TEMPORAL_STRIDE), (), queried, sees)


def _group(frame: int) -> int:
    return frame // FRAMES_PER_GROUP


def _layout(
    config: WorldConfig, frames: range, adjacent: tuple[int, ...], targets: tuple[int, ...], sees: Sees
) -> Layout:
    places = tuple(TEMPORAL_STRIDE * frame for frame in frames)
    return build_layout(config, tuple(frames), places, adjacent, targets, sees)
