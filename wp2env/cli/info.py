"""``wp2 info``: what a world is and which versions it runs with."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version

from world_model.checkpoint import find_world, load_world
from world_model.reward import heads_of

CARD = "card.md"
PACKAGES = ("worldplay2-gym", "torch", "numpy", "gymnasium", "vizdoom", "stable-baselines3")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 info``."""
    parser.add_argument("--world", default="doom", help="a bundled world or a folder with one (default: %(default)s)")


def main(settings: argparse.Namespace) -> None:
    """Print the card of a world, its sizes and the versions of the packages that matter."""
    folder = find_world(settings.world)
    world = load_world(folder)
    card = folder / CARD
    print(card.read_text().strip() if card.is_file() else f"{folder} has no {CARD}")
    config = world.config
    parameters = {name: sum(p.numel() for p in part.parameters()) for name, part in world.named_children()}
    print(f"\nworld       {config.name}, {folder}")
    print(f"pictures    {config.video.width}x{config.video.height}, {config.video.frame_rate:g} a second")
    print(f"chunk       {config.chunk_latents} latents of {config.codec.temporal_factor} frames")
    frames = config.chunk_latents * config.codec.temporal_factor
    print(f"evaluations {world.evaluations / frames:g} of the network a frame, {world.evaluations} a chunk")
    heads = heads_of(world)
    print(f"rewards     {'none are learned' if heads is None else ', '.join(heads.tasks)}")
    print("parameters  " + ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in parameters.items()))
    print(f"python      {platform.python_version()}")
    for name in PACKAGES:
        print(f"{name:<18}{_version(name)}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
