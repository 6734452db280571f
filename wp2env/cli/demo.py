"""``wp2 demo``: a control script played in a world, written as a video."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from world_model.checkpoint import load_world
from world_model.control_scripts import (
    DEFAULT_DEGREES,
    ControlScriptError,
    action_rows,
    chunk_values,
    parse_schedule,
    perspective_column,
)
from world_model.controls import FIRST_PERSON, NOTHING, PERSPECTIVE, StructuredCaption
from world_model.world import World
from wp2env.cli.arguments import MAX_ZOOM, add_world_arguments, degrees, whole
from wp2env.cli.video import Strip, check_video, write_video
from wp2env.starts import BANK_FILE, Start, newest_whole_chunks, read_bank


@dataclass(frozen=True)
class Script:
    """What the demo plays when it is told nothing: a typed event, then a change to third person."""

    actions: str = "right-6,w-4,left-8,w-4,none-4,right-6,w-4,right-8,w-4,left-8,s-4,w+space-4"
    views: str = "fps-32,tps-32"
    events: str = "None-16,the lights go out-16,None-32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 demo``."""
    script = Script()
    add_world_arguments(parser)
    parser.add_argument("--actions", help=f"what the controls do, in latent frames (default: {script.actions!r})")
    parser.add_argument("--views", help=f"fps or tps for each stretch (with the default actions: {script.views!r})")
    parser.add_argument(
        "--events", help=f"what happens, None for nothing (with the default actions: {script.events!r})"
    )
    parser.add_argument("--yaw", type=degrees, default=10.0, help="degrees per latent of left and right (%(default)s)")
    parser.add_argument("--pitch", type=degrees, default=DEFAULT_DEGREES, help="and of up and down (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("demo.mp4"), help="an .mp4 or .gif file (%(default)s)")
    parser.add_argument("--zoom", type=whole(1, MAX_ZOOM), default=6, help="size of a pixel (%(default)s)")
    parser.add_argument("--plain", action="store_true", help="no line about controls and event under the pictures")


@dataclass(frozen=True)
class Plan:
    """A script worked out: one action row per latent, and the event that is in force there."""

    rows: np.ndarray  # float32 [T, 6]; row 0 belongs to the picture that the video starts with
    events: list[str]  # changes between chunks only; those begin at rows 1, 1 + n, 1 + 2n, ...

    @property
    def view(self) -> int:
        """The perspective that the video starts with."""
        return int(self.rows[0, PERSPECTIVE])


def plan(settings: argparse.Namespace, chunk_latents: int) -> Plan:
    """Work out the scripts of the command line.

    Raises:
        ValueError: for scripts that do not parse or do not fit together.
    """
    script = Script() if settings.actions is None else Script(settings.actions, "", "")
    views, events = settings.views or script.views, settings.events or script.events
    with _told("--actions"):
        rows = action_rows(script.actions, FIRST_PERSON, settings.yaw, settings.pitch)
    if views:
        with _told("--views"):
            rows[:, PERSPECTIVE] = perspective_column(views, len(rows))
    if not events:
        return Plan(rows, [NOTHING] * len(rows))
    with _told("--events"):
        # What we play unasked suits every chunk: an event waits for the next one. What the user wrote has to fit.
        grid = chunk_latents if settings.events else 1
        told = chunk_values(parse_schedule(events, len(rows), grid))
    return Plan(rows, [told[max(0, (latent - 1) // chunk_latents * chunk_latents + 1)] for latent in range(len(rows))])


@contextmanager
def _told(option: str) -> Iterator[None]:
    """Say which option a malformed script came from."""
    try:
        yield
    except ControlScriptError as error:
        raise ValueError(f"{option}: {error}") from error


def choose_start(world: World, settings: argparse.Namespace, view: int) -> Start:
    """A recorded start in that view, drawn by the seed, or the scene that was asked for.

    Raises:
        ValueError: when there is none.
    """
    if settings.scene is not None:
        return Start(None, StructuredCaption(settings.scene), view)
    file = None if world.path is None else world.path / BANK_FILE
    if file is None or not file.is_file():
        raise ValueError(f"the world {settings.world!r} brings no recorded starts; describe one with --scene")
    bank = read_bank(file)
    fitting = np.flatnonzero(bank.perspectives == view)
    if not len(fitting):
        raise ValueError(f"no recorded start of {settings.world!r} is in the view that the script begins with")
    start = bank[int(np.random.default_rng(settings.seed).choice(fitting))]
    n, r = world.config.chunk_latents, world.config.codec.temporal_factor
    return Start(newest_whole_chunks(start.frames, n * r), start.caption, start.perspective)


def roll(world: World, start: Start, script: Plan, settings: argparse.Namespace) -> Iterator[np.ndarray]:
    """The frames of a script, uint8 ``[H, W, 3]`` one by one, the start's newest first."""
    stream = world.stream(1, sampling_steps=settings.steps)
    n, r = stream.latents_per_chunk, stream.frames_per_latent
    frames = None if start.frames is None else torch.from_numpy(start.frames.copy())
    yield from stream.reset([0], [frames], [start.caption_in_view()], [settings.seed], [start.rows(r)]).cpu().numpy()
    for first in range(1, len(script.rows), n):
        rows = script.rows[first : first + n]
        held = np.concatenate([rows, np.repeat(rows[-1:], n - len(rows), axis=0)])  # the last chunk must be whole
        stream.set_caption([0], character=start.character(int(rows[-1, PERSPECTIVE])), event=script.events[first])
        yield from stream.step(held[None])[0, : len(rows) * r].cpu().numpy()


def main(settings: argparse.Namespace) -> None:
    """Write the video and say what was done, and how fast."""
    check_video(settings.out)
    world = load_world(settings.world, settings.device)
    script = plan(settings, world.config.chunk_latents)
    start = choose_start(world, settings, script.view)
    r = world.config.codec.temporal_factor
    total = 1 + (len(script.rows) - 1) * r
    began = time.monotonic()
    frames = list(tqdm(roll(world, start, script, settings), total=total, unit="frame", desc="generating"))
    speed = (len(frames) - 1) / max(time.monotonic() - began, 1e-9)
    of_latent = [-(-index // r) for index in range(len(frames))]
    strips = [Strip(script.rows[latent], script.events[latent]) for latent in of_latent]
    rate = world.config.video.frame_rate
    write_video(settings.out, frames, rate, settings.zoom, None if settings.plain else strips)

    happened = ", ".join(dict.fromkeys(event for event in script.events if event != NOTHING)) or "no event"
    switches = int(np.count_nonzero(np.diff(script.rows[:, PERSPECTIVE])))
    print(
        f"{settings.out}: {len(frames)} frames of {start.caption.scene}; {happened}; perspective switched {switches}x"
    )
    print(f"generated at {speed:.1f} frames a second, {speed / rate:.1f} times the game's own pace")
