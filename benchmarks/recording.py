"""Claim: the Doom engine records at least 2,500 captioned 64-pixel frames per second and core, checked events included.

Run ``python -m benchmarks.recording`` (``--quick``: under a minute; ``--out FILE``: also JSON). Every seed records
levels of its own; recorder and engine share one core, as in ``record doom`` itself. Beside frames per second of wall
time stands frames per second of processor time (recorder plus engine), which a busy machine disturbs less. Intervals
are 95 % bootstrap intervals over the seeds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from benchmarks import report

WANTED = 2500  # frames per second and core at 64 pixels
QUICK_SEEDS, QUICK_CLIPS = 3, 24
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def processor_seconds(process: int) -> float:
    """User and system time of a running process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def children(process: int) -> list[int]:
    """The ids of the processes that a process has started and that still run."""
    started_by_threads = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in started_by_threads for child in file.read_text().split()]


def measure(seed: int, clips: int, frames: int, size: int, with_events: bool) -> dict[str, float]:
    """Record clips of the default mix in this process and count frames per second."""
    from world_model.data.doom.recipe import Recipe
    from world_model.data.doom.studio import LevelStudio

    others = set(children(os.getpid()))
    studio = LevelStudio(Recipe(seed, "train", frames, size), list(range(clips)), with_events)
    try:
        studio.record(0)  # the first episode loads sprites and sounds
        engines = set(children(os.getpid())) - others
        begun, own = time.perf_counter(), time.process_time()
        engine_before = sum(processor_seconds(engine) for engine in engines)
        events = sum(studio.record(index).meta["event"] is not None for index in range(clips))
        wall, own = time.perf_counter() - begun, time.process_time() - own
        engine = sum(processor_seconds(process) for process in engines) - engine_before
    finally:
        studio.close()
    return {
        "frames per second and core": clips * frames / wall,
        "frames per processor second": clips * frames / (own + engine),
        "recorder, microseconds per frame": 1e6 * own / clips / frames,
        "engine, microseconds per frame": 1e6 * engine / clips / frames,
        "events per clip": events / clips,
    }


def check(settings: argparse.Namespace) -> None:
    """Refuse settings that cannot be measured."""
    limits = {"clips": (1, 10**5), "frames": (2, 10**5), "size": (8, 480), "seeds": (1, 1000), "seed": (0, 2**31)}
    for name, (low, high) in limits.items():
        if not low <= getattr(settings, name) <= high:
            raise ValueError(f"--{name} is {getattr(settings, name)}, allowed are {low} to {high}")
    if not Path("/proc/self/stat").exists():
        raise ValueError("this benchmark reads processor times from /proc, so it runs on Linux only")
    if settings.core not in os.sched_getaffinity(0):
        raise ValueError(f"--core is {settings.core}, usable are {sorted(os.sched_getaffinity(0))}")
    if importlib.util.find_spec("vizdoom") is None:
        raise ValueError('recording needs ViZDoom; install it with pip install "worldplay2-gym[doom]"')


def main(settings: argparse.Namespace) -> None:
    """Measure with and without events and their twins, print a table, and write JSON where asked."""
    if settings.quick:
        settings.seeds, settings.clips = min(settings.seeds, QUICK_SEEDS), min(settings.clips, QUICK_CLIPS)
    check(settings)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {settings.core})
    seeds = list(range(settings.seed, settings.seed + settings.seeds))
    results: dict[str, dict[str, report.Interval]] = {}
    try:
        for name, with_events in (("with events, each checked against its twin", True), ("without events", False)):
            runs = [
                measure(seed, settings.clips, settings.frames, settings.size, with_events)
                for seed in tqdm(seeds, desc=name, unit="seed", leave=False)
            ]
            results[name] = {what: report.bootstrap([run[what] for run in runs]) for what in runs[0]}
    finally:
        os.sched_setaffinity(0, cores)
    header = [f"{settings.size} px, {len(seeds)} seeds x {settings.clips} clips x {settings.frames} frames", *results]
    names = list(next(iter(results.values())))
    print(
        report.markdown_table(
            header, [[n, *(r[n].text(2 if "clip" in n else 0) for r in results.values())] for n in names]
        )
    )
    load = os.getloadavg()[0]
    print(f"\nload average {load:.2f} on {len(cores)} cores; wanted at 64 px: {WANTED} frames per second and core")
    if settings.out:
        content = {
            "settings": {
                name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()
            },
            "seeds": seeds,
            "machine": report.machine(),
            "load average": load,
            "wanted": WANTED,
            "results": {name: {what: asdict(i) for what, i in result.items()} for name, result in results.items()},
        }
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        settings.out.write_text(json.dumps(content, indent=1) + "\n")
        print(f"wrote {settings.out}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run: 3 seeds of 24 clips")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=8, help="so many seeds in a row")
    parser.add_argument("--clips", type=int, default=60, help="clips per seed")
    parser.add_argument("--frames", type=int, default=64, help="frames per clip")
    parser.add_argument("--size", type=int, default=64, help="side of a frame in pixels")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="where to run")
    parser.add_argument("--out", "--json", type=Path, help="also write the numbers to this file, as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main(parse())
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
