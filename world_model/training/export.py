"""From a run to a world: the averaged weights of the newest checkpoint, saved as a world folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from world_model.training import checkpointing
from world_model.training.run import trained_expert
from world_model.training.worlds import AnyWorld, Trainable, open_world, save


def world_of_run(run: Path) -> AnyWorld:
    """The world of a run's newest checkpoint; of its best one when the run collapsed and stopped itself, or what it
    began with when it was never better than that.

    A checkpoint holds only what its stage trains; the rest is in ``run / "start"``, the world that the run began with.

    Raises:
        FileNotFoundError: when the run has no checkpoint yet.
    """
    existing = checkpointing.checkpoints(run)
    if not existing:
        raise FileNotFoundError(f"{run} holds no checkpoint; train it first or give another folder")
    world = open_world(run / "start", trained_expert(run))
    if checkpointing.progress_of(run).collapsed is not None:
        existing = checkpointing.checkpoints(run / checkpointing.BEST)
        if not existing:
            return world
    averaged = load_file(existing[-1] / "averaged.safetensors")
    known = world.state_dict()
    world.load_state_dict(known | {name: value for name, value in averaged.items() if name in known})
    return world


def export(
    run: Path, folder: Path, dtype: torch.dtype = torch.bfloat16, fused: bool = False, steps: int | None = None
) -> None:
    """Save the world of a run's newest checkpoint; ``fused`` makes a distilled one smaller (`World.fused`), ``steps``
    is how many network evaluations its chunks have from then on where nothing else is asked for.

    Raises:
        ValueError: when the world was not distilled and shall be fused, or cannot be evaluated so often; and for either
            with a large world.
    """
    world = world_of_run(run)
    if isinstance(world, Trainable) and (fused or steps is not None):
        raise ValueError("a large world generates with the numbers of its variant; leave out --fused and --steps")
    if steps is not None:
        world.config = replace(world.config, flow=replace(world.config.flow, sampling_steps=steps))
    save(world.fused() if fused else world, folder, dtype)
