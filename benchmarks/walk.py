"""A stream that walks at random, and what its steps cost early and late in an episode."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from benchmarks import report
from world_model.controls import ACTION_DIM, PERSPECTIVE, YAW, StructuredCaption
from world_model.large.stream import LargeStream
from world_model.rollout import WorldStream
from world_model.sampling import Sampler, block_euler
from world_model.world import World

BLOCK_STEPS = 10  # timed at once: long enough for the clock, short enough that both streams meet the same machine
Stream = TypeVar("Stream", WorldStream, LargeStream)
CAPTION = StructuredCaption("a room with plain grey walls, a plain brown floor and a white ceiling, bright")


@dataclass(frozen=True)
class Flatness:
    """Milliseconds of a step early and late in an episode, and late over early."""

    early: report.Interval
    late: report.Interval
    ratio: report.Interval


def begin(
    world: World, slots: int, seed: int, sampling_steps: int | None = None, sampler: Sampler = block_euler
) -> WorldStream:
    """A stream whose slots all begin from text."""
    return begun(world.stream(slots, sampling_steps=sampling_steps, sampler=sampler), seed)


def begun(stream: Stream, seed: int) -> Stream:
    """A new stream of any world after all its slots began from text."""
    slots = range(stream.num_slots)
    stream.reset(slots, [None] * len(slots), [CAPTION] * len(slots), [seed + slot for slot in slots])
    return stream


def random_rows(stream: WorldStream | LargeStream, rng: np.random.Generator) -> np.ndarray:
    """Action rows ``[B, n, 6]`` that walk and turn."""
    rows = np.zeros((stream.num_slots, stream.latents_per_chunk, ACTION_DIM), dtype=np.float32)
    rows[..., YAW] = rng.uniform(-15, 15, rows.shape[:2])
    rows[..., 2:] = rng.integers(0, 2, rows[..., 2:].shape)
    rows[..., PERSPECTIVE] = 1
    return rows


def walk(stream: WorldStream, steps: int, rng: np.random.Generator) -> None:
    """Take so many steps."""
    for _ in range(steps):
        stream.step(random_rows(stream, rng))


def flatness(early: WorldStream, late: WorldStream, blocks: int, rng: np.random.Generator, seed: int) -> Flatness:
    """Time blocks of steps of both streams in turn, so that whatever else the machine does falls on both alike.

    ``early`` returns to where it is before every block; ``late`` goes on. Medians over the blocks, with 95 %
    bootstrap intervals.
    """
    start = early.snapshot()
    times = np.empty((blocks, 2))
    for block in times:
        early.restore(start)
        for index, stream in enumerate((early, late)):
            began = time.perf_counter()
            walk(stream, BLOCK_STEPS, rng)
            block[index] = (time.perf_counter() - began) / BLOCK_STEPS * 1000
    measured = (times[:, 0], times[:, 1], times[:, 1] / times[:, 0])
    return Flatness(*(report.bootstrap(values, seed, statistic=np.median) for values in measured))
