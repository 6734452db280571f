"""`wp2 train doom` and `wp2 export`: run a stage of the curriculum, and turn a run into a world."""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import torch

from world_model.checkpoint import check_device, load_world, save_world
from world_model.config import PRESETS, to_json
from world_model.data.joined import JoinedStore
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.codec import CodecStage, DecoderStage
from world_model.training.export import export
from world_model.training.frame_query import FrameQueryStage
from world_model.training.history import HistoryStage
from world_model.training.latents import LatentStore
from world_model.training.loop import Budget, train
from world_model.training.navigation import NavigationStage
from world_model.world import World

CODEC_STAGES = {"codec": CodecStage, "decoder": DecoderStage}
NETWORK_STAGES = {
    "navigation": NavigationStage,
    "frame_query": FrameQueryStage,
    "history": HistoryStage,
    "autoregressive": AutoregressiveStage,
}
STAGES = (*CODEC_STAGES, *NETWORK_STAGES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `wp2 train doom`."""
    parser.add_argument("--stage", required=True, choices=STAGES, help="the stage of the curriculum to run")
    parser.add_argument("--data", required=True, type=Path, nargs="+", help="recordings, from `wp2 record doom`")
    parser.add_argument("--out", required=True, type=Path, help="run folder; run again with the same to continue")
    parser.add_argument("--start", help="world or run that the stage starts from (default: random weights)")
    parser.add_argument("--preset", default="doom", choices=sorted(PRESETS), help="sizes, when there is no --start")
    parser.add_argument("--clips", type=int, help="use only the first so many clips of each recording")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes of training, all sessions together")
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights")
    parser.add_argument("--device", help="cpu or cuda (default: the best there is)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")


def main(args: argparse.Namespace) -> None:
    """Run one stage, then save its world under ``OUT/world``."""
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.device:
        check_device(args.device)
    budget = Budget(args.steps, args.minutes)
    store = JoinedStore(args.data)  # before anything is written, so that a wrong path leaves nothing behind
    _remember(args, store)
    world = _starting_world(args)
    _check_size(store, world)
    settings = getattr(world.config.curriculum, args.stage)
    if args.stage in CODEC_STAGES:
        stage = CODEC_STAGES[args.stage](world.codec, store, settings)
    else:
        latents = LatentStore(store, world.codec, world.config, cache=args.out / "cache", clips=args.clips)
        stage = NETWORK_STAGES[args.stage](world, latents, settings)
    train(stage.train(), args.out, settings, budget, to_json(world.config), args.device)
    export(args.out, args.out / "world")
    print(f"the world of this run is in {args.out / 'world'}")


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `wp2 export`."""
    parser.add_argument("run", type=Path, help="run folder of `wp2 train`; its newest checkpoint is taken")
    parser.add_argument("out", type=Path, help="folder of the world to write")


def export_main(args: argparse.Namespace) -> None:
    """Save the averaged weights of a run's newest checkpoint as a world."""
    export(args.run, args.out)
    print(f"wrote {args.out}")


def _remember(args: argparse.Namespace, store: JoinedStore) -> None:
    """Write down what a run is of; a run that continues as something else would mix two.

    Raises:
        ValueError: naming what differs.
    """
    start = args.start or f"random weights of {args.preset}, seed {args.seed}"
    digest = hashlib.sha256("".join(entry.sha256 for entry in store.entries).encode()).hexdigest()[:16]
    wanted = {"stage": args.stage, "start": start, "recordings": digest, "clips": args.clips}
    file = args.out / "run.json"
    if file.is_file():
        known = json.loads(file.read_text())
        differing = [name for name, value in wanted.items() if known.get(name) != value]
        if differing:
            name = differing[0]
            raise ValueError(
                f"{args.out} is a run with {name} {known.get(name)!r}, not {wanted[name]!r}; "
                "continue it with what it began with, or choose another --out"
            )
    args.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(wanted, indent=1) + "\n")


def _check_size(store: JoinedStore, world: World) -> None:
    """Raise ValueError when the recordings have another picture size than the world."""
    recorded, video = store[0].frames.shape[1:3], world.config.video
    if tuple(recorded) != (video.height, video.width):
        raise ValueError(
            f"the recordings have pictures of {recorded[0]}x{recorded[1]} and the world {world.config.name!r} makes "
            f"{video.height}x{video.width}; record with --size {video.height}, or choose another --preset or --start"
        )


def _starting_world(args: argparse.Namespace) -> World:
    """The world that a run starts from, remembered in the run so that a continued run has the same."""
    remembered = args.out / "start"
    if not (remembered / "world.safetensors").is_file():
        if args.start is None:
            world = World.random(args.preset, args.seed)
        else:
            run = Path(args.start) / "world"
            world = _with_present_settings(load_world(run if run.is_dir() else args.start))
        save_world(world, remembered, torch.float32)
    return load_world(remembered).requires_grad_(True)


def _with_present_settings(world: World) -> World:
    """A world whose memory budget, noise and curriculum are those of its preset now, if it has one; its sizes stay."""
    if world.config.name not in PRESETS:
        return world
    present = PRESETS[world.config.name]
    world = world.with_memory(present.memory)
    world.config = replace(world.config, flow=present.flow, curriculum=present.curriculum)
    return world
