"""One stage in one run folder: what the run is of, the world that it starts from, and its training."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from world_model.checkpoint import load_world, save_world
from world_model.config import PRESETS, WorldConfig, to_json
from world_model.data.joined import JoinedStore
from world_model.data.store import write_json
from world_model.training.checkpointing import Progress
from world_model.training.latents import LatentStore
from world_model.training.loop import Budget, train
from world_model.training.stages import CODEC_STAGES, NETWORK_STAGES
from world_model.world import World


@dataclass(frozen=True)
class StageRun:
    """What one stage trains on, what it starts from and where it is kept."""

    stage: str  # one of `stages.STAGES`
    data: tuple[Path, ...]  # recordings
    out: Path  # run folder; a run that is there already is continued
    cache: Path  # folder of the encoded recordings
    start: str | None = None  # world or run that the stage starts from; None: random weights
    preset: str = "doom"  # sizes of the random weights
    seed: int = 0  # of the random weights
    clips: int | None = None  # use only the first so many clips of each recording
    device: str | None = None  # cpu or cuda; None: the best there is


def run_stage(run: StageRun, budget: Budget) -> Progress:
    """Train until the budget is used or a signal asks to stop; the newest checkpoint in ``run.out`` is the result.

    Raises:
        ValueError: when the folder is another run, or recordings and world do not fit together.
    """
    store = JoinedStore(run.data)  # before anything is written, so that a wrong path leaves nothing behind
    start = run.out / "start"  # kept in the run, so that a continued run needs nothing else
    begun = (start / "config.json").is_file()  # what `save_world` writes last
    world = load_world(start) if begun else _given_world(run)
    _check_size(store, world.config)
    remember(run, store)
    if not begun:
        save_world(world, start, torch.float32)
        world = load_world(start)
    world.requires_grad_(True)
    settings = getattr(world.config.curriculum, run.stage)
    if run.stage in CODEC_STAGES:
        stage = CODEC_STAGES[run.stage](world.codec, store, settings)
    else:
        latents = LatentStore(store, world.codec, world.config, cache=run.cache, clips=run.clips)
        stage = NETWORK_STAGES[run.stage](world, latents, settings)
    return train(stage.train(), run.out, settings, budget, to_json(world.config), run.device)


def remember(run: StageRun, store: JoinedStore) -> None:
    """Write down what a run is of; a run that continues as something else would mix two.

    Raises:
        ValueError: naming what differs.
    """
    start = run.start or f"random weights of {run.preset}, seed {run.seed}"
    wanted = {"stage": run.stage, "start": start, "recordings": store.digest, "clips": run.clips}
    file = run.out / "run.json"
    if file.is_file():
        known = json.loads(file.read_text())
        differing = [name for name, value in wanted.items() if known.get(name) != value]
        if differing:
            name = differing[0]
            raise ValueError(
                f"{run.out} is a run with {name} {known.get(name)!r}, not {wanted[name]!r}; "
                "continue it with what it began with, or choose another --out"
            )
    run.out.mkdir(parents=True, exist_ok=True)
    write_json(file, wanted)


def _check_size(store: JoinedStore, config: WorldConfig) -> None:
    """Raise ValueError when the recordings have another picture size than the world."""
    recorded, video = store[0].frames.shape[1:3], config.video
    if tuple(recorded) != (video.height, video.width):
        raise ValueError(
            f"the recordings have pictures of {recorded[0]}x{recorded[1]} and the world {config.name!r} makes "
            f"{video.height}x{video.width}; record with --size {video.height}, or choose another --preset or --start"
        )


def _given_world(run: StageRun) -> World:
    """The world that a run is told to start from, as its stage trains it."""
    if run.start is None:
        world = World.random(run.preset, run.seed)
    else:
        exported = Path(run.start) / "world"
        world = with_present_settings(load_world(exported if exported.is_dir() else run.start))
    return NETWORK_STAGES[run.stage].starts_from(world) if run.stage in NETWORK_STAGES else world


def with_present_settings(world: World) -> World:
    """A world whose memory bounds, noise levels and curriculum are those of its preset now, if it has one; all that
    decides its weights' shapes stays."""
    if world.config.name not in PRESETS:
        return world
    present = PRESETS[world.config.name]
    world = world.with_memory(present.memory)
    world.config = replace(world.config, flow=present.flow, curriculum=present.curriculum)
    return world
