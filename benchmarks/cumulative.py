"""Faster inference, technique by technique (`benchmarks.speed --cumulative`; the paper's Table 4).

Every line adds one technique to the line above; what this machine has not got is said in its line and left out of the
following ones. Blocks of all lines are measured in turn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import report
from benchmarks.walk import begun, random_rows
from world_model.acceleration import Techniques, accelerated
from world_model.large.stream import MAX_LATENTS, LargeSnapshot, LargeStream
from world_model.large.world import LoadedWorld
from world_model.rollout import Snapshot, WorldStream
from world_model.world import World

PLAIN = "plain"
LADDER = {  # what each line switches on and off
    "+ fused QKV": {"fused_projections": True},
    "+ cached text": {"cached_text": True},
    "+ compiled blocks": {"compiled": True},
    "+ bf16": {"bfloat16": True},
    "+ int8 weights": {"int8": True},
    "+ CUDA graph": {"graphed": True},
    "+ fp8 in place of int8": {"float8": True, "int8": False},
}
HEADER = ("technique", "environment steps a second", "of plain", "of the line above", "first chunk's difference")


@dataclass(frozen=True)
class Line:
    """One line of the table: its techniques, or why they cannot be used here."""

    name: str
    techniques: Techniques
    missing: str | None = None


@dataclass(frozen=True)
class Result:
    """What a line's blocks showed; ratios compare blocks of the same round."""

    steps_per_second: report.Interval
    of_plain: report.Interval
    of_the_line_above: report.Interval
    difference: float  # root mean square over that of the plain world's chunk


def lines(device: torch.device) -> list[Line]:
    """All lines, from the plain world on."""
    found = [Line(PLAIN, Techniques())]
    now = found[0].techniques
    for name, change in LADDER.items():
        wanted = replace(now, **change)
        missing = wanted.missing(device)
        found.append(Line(name, wanted, missing))
        now = now if missing else wanted
    return found


def measure(
    world: World | LoadedWorld, slots: int, rounds: int, seconds: float, seed: int, sampling_steps: int | None = None
) -> dict[str, Result | str]:
    """What every line shows with so many slots, by name; for one that cannot be used the reason.

    Every block starts at the same moment of its stream: the memory of a large world grows, and its positions end.
    """
    ladder = lines(world.device)
    usable = [line for line in ladder if not line.missing]
    worlds = [accelerated(world, line.techniques) for line in usable]
    streams = [begun(each.stream(slots, sampling_steps=sampling_steps), seed) for each in worlds]
    rng = np.random.default_rng(seed)
    rows = random_rows(streams[0], rng)
    for stream in tqdm(streams, desc=f"first steps of {slots} slots", leave=False):  # compilation, graphs
        stream.step(rows)
    chunks, starts = [stream.latents.float() for stream in streams], [stream.snapshot() for stream in streams]
    most = _steps_left(streams[0])
    few = min(most, 2 * world.config.memory.temporal_stride)
    paces = [[_time(*each, few, rng) for each in zip(streams, starts, strict=True)] for _ in range(2)]
    steps = max(1, min(most, round(seconds * min(paces[1]))))  # the first time shapes came that are compiled for
    rates = np.empty((rounds, len(streams)))
    for row in tqdm(rates, desc=f"{slots} slots", unit="round", leave=False):
        row[:] = [slots * _time(*each, steps, rng) for each in zip(streams, starts, strict=True)]
    results = {}
    for index, line in enumerate(usable):
        columns = rates[:, index], rates[:, index] / rates[:, 0], rates[:, index] / rates[:, max(0, index - 1)]
        intervals = (report.bootstrap(values, seed, statistic=np.median) for values in columns)
        results[line.name] = Result(*intervals, _difference(chunks[index], chunks[0]))
    return {line.name: line.missing or results[line.name] for line in ladder}


def table(results: dict[str, Result | str]) -> str:
    """The lines as a table."""
    rows = []
    for name, result in results.items():
        if isinstance(result, str):
            rows.append([name, result, *["-"] * (len(HEADER) - 2)])
            continue
        intervals = result.steps_per_second, result.of_plain, result.of_the_line_above
        rows.append([name, *(str(interval) for interval in intervals), f"{100 * result.difference:.2g} %"])
    return report.markdown_table(HEADER, rows)


def curves(measured: dict[int, dict[str, Result | str]]) -> list[report.Curve]:
    """The lines that could be measured, over numbers of slots."""
    slots: Sequence[int] = list(measured)
    names = [name for name, result in measured[slots[0]].items() if isinstance(result, Result)]
    return [report.Curve(name, slots, [measured[count][name].steps_per_second for count in slots]) for name in names]


def _steps_left(stream: WorldStream | LargeStream) -> int:
    """Steps until a stream must be reset; of small worlds, which go on for ever, any large number."""
    if isinstance(stream, LargeStream):
        return (MAX_LATENTS - int(stream.steps_taken.max())) // stream.latents_per_chunk
    return sys.maxsize


def _time(
    stream: WorldStream | LargeStream, start: Snapshot | LargeSnapshot, steps: int, rng: np.random.Generator
) -> float:
    """Batched steps a second from ``start`` on; pictures arrive on the CPU, where an agent reads them."""
    stream.restore(start)
    began = time.perf_counter()
    for _ in range(steps):
        stream.step(random_rows(stream, rng)).cpu()
    return steps / (time.perf_counter() - began)


def _difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())
