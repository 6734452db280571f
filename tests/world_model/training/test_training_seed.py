"""The seed of what training steps draw: another one trains another world, and a run keeps the one it began with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from world_model.checkpoint import load_world, save_world
from world_model.config import TINY
from world_model.training.curriculum import finish_stage
from world_model.training.loop import Budget
from world_model.training.run import StageRun
from world_model.training.stages import STAGES


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_seed_changes_the_settings_of_its_stage_alone(stage):
    seeded = stage.seeded(TINY, 7)
    assert stage.settings(seeded) == replace(stage.settings(TINY), seed=7)
    differing = [name for name, value in vars(seeded.curriculum).items() if value != getattr(TINY.curriculum, name)]
    assert differing == [stage.settings_name or stage.name]
    assert replace(seeded, curriculum=TINY.curriculum) == TINY


def test_another_training_seed_trains_another_world_and_stays_with_its_run(stripes, hasty_world, tmp_path):
    start = load_world(hasty_world)
    start.config = replace(start.config, name="hasty")  # no preset's name: it keeps its small batches
    save_world(start, tmp_path / "start", torch.float32)
    first = StageRun(
        "history", (stripes.path,), tmp_path / "none", tmp_path / "cache", str(tmp_path / "start"), device="cpu"
    )
    runs = [first, *(replace(first, out=tmp_path / name, training_seed=k) for name, k in (("zero", 0), ("one", 1)))]
    for run in runs:
        finish_stage(run, Budget(steps=2))
    none, zero, one = (load_world(run.out / "world") for run in runs)
    weights = [world.transformer.head.weight for world in (none, zero, one)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert (none.config.curriculum.history.seed, one.config.curriculum.history.seed) == (0, 1)
    with pytest.raises(ValueError, match="is a run with training_seed 1, not 2; continue it with what it began with"):
        finish_stage(replace(runs[2], training_seed=2), Budget(steps=3))
