"""Other settings than the preset's: they train another world, and a run keeps those that it began with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from world_model.checkpoint import load_world, save_world
from world_model.training.curriculum import finish_stage
from world_model.training.loop import Budget
from world_model.training.run import StageRun


def test_another_seed_trains_another_world_and_stays_with_its_run(stripes, hasty_world, tmp_path):
    start = load_world(hasty_world)
    start.config = replace(start.config, name="hasty")  # no preset's name: it keeps its small batches
    save_world(start, tmp_path / "start", torch.float32)
    first = StageRun(
        "history", (stripes.path,), tmp_path / "none", tmp_path / "cache", str(tmp_path / "start"), device="cpu"
    )
    seeds = {name: (f"history.seed={k}",) for name, k in (("zero", 0), ("one", 1))}
    runs = [first, *(replace(first, out=tmp_path / name, settings=seed) for name, seed in seeds.items())]
    for run in runs:
        finish_stage(run, Budget(steps=2))
    none, zero, one = (load_world(run.out / "world") for run in runs)
    weights = [world.transformer.head.weight for world in (none, zero, one)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert (none.config.curriculum.history.seed, one.config.curriculum.history.seed) == (0, 1)
    with pytest.raises(ValueError, match=r"is a run with settings \['history.seed=1'\], not None; continue it"):
        finish_stage(replace(runs[2], settings=()), Budget(steps=3))
