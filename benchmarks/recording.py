"""Claim: the Doom engine records at least 2,500 captioned 64-pixel frames per second and core, checked events included.

Run ``python -m benchmarks.recording``; prints JSON. Recorder and engine share one core, as in ``record doom`` itself.
Beside frames per second of wall time stands frames per second of processor time (recorder plus engine), which a
busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def processor_seconds(process: int) -> float:
    """User and system time of a running process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def children(process: int) -> list[int]:
    """The ids of the processes that a process has started and that still run."""
    started_by_threads = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in started_by_threads for child in file.read_text().split()]


def measure(clips: int, frames: int, size: int, core: int, twins: bool) -> dict:
    """Record clips of the default mix in one pinned process and count frames per second."""
    from world_model.data.doom.recipe import Recipe
    from world_model.data.doom.studio import LevelStudio

    os.sched_setaffinity(0, {core})
    recipe = Recipe(seed=1, split="train", frames=frames, size=size)
    studio = LevelStudio(recipe, list(range(clips)), with_events=twins)
    studio.record(0)  # the first episode loads sprites and sounds
    begun, own = time.perf_counter(), time.process_time()
    engines = children(os.getpid())
    engine_before = sum(processor_seconds(engine) for engine in engines)
    events = sum(studio.record(index).meta["event"] is not None for index in range(clips))
    wall, own = time.perf_counter() - begun, time.process_time() - own
    engine = sum(processor_seconds(process) for process in engines) - engine_before
    studio.close()
    return {
        "size": size,
        "frames": clips * frames,
        "events per clip": round(events / clips, 2),
        "frames per second and core": round(clips * frames / wall),
        "frames per processor second": round(clips * frames / (own + engine)),
        "microseconds per frame": {
            "recorder": round(1e6 * own / clips / frames),
            "engine": round(1e6 * engine / clips / frames),
        },
    }


def main() -> None:
    """Print the numbers with and without events and their twins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("clips", "frames", "size", "core")}
    result = {
        "with events, each checked against its twin": measure(**sizes, twins=True),
        "without events": measure(**sizes, twins=False),
        "load average": os.getloadavg()[0],
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
