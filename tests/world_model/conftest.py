"""A tiny world whose every weight matters: nothing is left at its zero initialisation."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from world_model.config import TINY
from world_model.controls import ACTION_DIM, StructuredCaption
from world_model.rollout import WorldStream
from world_model.world import World


def scrambled(config, seed: int = 0) -> World:
    world = World.random(config, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in world.parameters():
            scale = 0.3 if parameter.ndim < 2 else 1.2 / parameter[0].numel() ** 0.5
            parameter.copy_(parameter + torch.randn(parameter.shape, generator=generator) * scale)
    return world.eval().requires_grad_(False)


@pytest.fixture(scope="session")
def tiny_world() -> World:
    return scrambled(TINY)


@pytest.fixture(scope="session")
def chunked_world() -> World:
    """Four latents per chunk, four frames per latent, as in the large model."""
    codec = replace(TINY.codec, temporal_factor=4)
    return scrambled(replace(TINY, chunk_latents=4, codec=codec), seed=5)


@pytest.fixture(scope="session")
def distil() -> Callable[..., World]:
    """Gives a world a parallel decoder each of whose heads is another one."""

    def make(world: World, blocks: tuple[int, ...] = (2, 2, 3, 1), seed: int = 7) -> World:
        world = world.with_blocks(blocks)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for heads in world.parallel_decoder.parameters():
                heads.add_(0.1 * torch.randn(heads.shape, generator=generator))
        return world.eval().requires_grad_(False)

    return make


@pytest.fixture(scope="session")
def begin() -> Callable[..., WorldStream]:
    """Starts a stream of a world, each slot from another picture."""

    def start(world: World, slots: int = 2, **options) -> WorldStream:
        stream = world.stream(slots, **options)
        pictures = torch.Generator().manual_seed(9)
        shape = (1, world.config.video.height, world.config.video.width, 3)
        starts = [torch.randint(256, shape, generator=pictures, dtype=torch.uint8) for _ in range(slots)]
        captions = [StructuredCaption("a hall", "a marine", f"event {slot}") for slot in range(slots)]
        stream.reset(range(slots), starts, captions, range(slots))
        return stream

    return start


@pytest.fixture(scope="session")
def roll() -> Callable[..., Tensor]:
    """Steps a stream under random actions; gives the chunks ``[steps, B, n, C, h, w]``."""

    def steps(stream: WorldStream, count: int = 3) -> Tensor:
        generator = torch.Generator().manual_seed(4)
        chunks = []
        for _ in range(count):
            shape = (stream.num_slots, stream.latents_per_chunk, ACTION_DIM)
            stream.step(8 * torch.randn(shape, generator=generator))
            chunks.append(stream.latents.clone())
        return torch.stack(chunks)

    return steps


@pytest.fixture(scope="session")
def tolerance() -> float:
    """How far measured bytes may be from planned ones, as a share: more on CPUs whose convolutions of bf16 unfold their
    input, which a plan does not know."""
    return 0.03 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else 0.1


@pytest.fixture
def allocated():
    """Measures the most bytes that the CPU's allocator had handed out at once during a call, beyond those before."""

    def measure(run) -> int:
        gc.collect()  # or what earlier tests left behind might be freed meanwhile, and count against it
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            run()
        changes = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = most = 0
        for change in sorted(changes, key=lambda event: event.start_ns()):
            now += change.nbytes()
            most = max(most, now)
        return most

    return measure
