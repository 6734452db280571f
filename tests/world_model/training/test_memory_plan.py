"""The plan for the small presets against bytes of a real step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from world_model.config import PRESETS, TINY
from world_model.training import memory_plan
from world_model.training.memory_plan import STAGES, computing, distinct_captions, follow, meta_batch, plan_stage
from world_model.training.optimizer import ExponentialMovingAverage, build_optimizers
from world_model.transformer import block
from world_model.world import World

FACTOR = 1.25  # between planned and measured activations, either way


@pytest.fixture(scope="module")
def small():
    """Few clips of the tiny world, long enough that activations are not nothing."""
    sizes = {"batch": 4, "frames": 8}
    stages = {"navigation": sizes, "autoregressive": sizes | {"history": 24}}
    changed = {name: replace(getattr(TINY.curriculum, name), **given) for name, given in stages.items()}
    return replace(TINY, curriculum=replace(TINY.curriculum, **changed))


@pytest.fixture
def fused(monkeypatch):
    """Torch's fused attention in training too, where a CPU otherwise takes plain products."""

    def attention(query, key, value, mask):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    monkeypatch.setattr(block, "attention", attention)


def by_name(plan):
    return {item.what: item.bytes for item in plan.items}


@pytest.mark.parametrize("name", STAGES)
def test_weights_and_optimisers_are_planned_to_the_byte(small, name):
    world = World.random(small)
    stage = STAGES[name](world, None, STAGES[name].settings(small)).train()
    optimizers = build_optimizers(stage, stage.config)
    trained = [p for p in stage.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
    states = [value for o in optimizers for state in o.state.values() for value in state.values()]
    average = ExponentialMovingAverage(stage.weights(), 0.9)
    found = by_name(plan_stage(small, name))
    assert found["weights"] == 4 * sum(x.numel() for x in world.state_dict().values())
    assert found["gradients"] == sum(p.grad.nbytes for p in trained)
    momenta = [x for x in states if isinstance(x, torch.Tensor) and x.ndim]
    assert found["optimiser (AdamW, Muon)"] == sum(x.nbytes for x in momenta)
    assert found["averaged weights"] == 4 * sum(x.numel() for x in average.values.values())


@pytest.mark.parametrize("name", STAGES)
def test_activations_are_near_those_measured(small, name, fused, allocated):
    world = computing(World.random(small))
    stage = distinct_captions(STAGES[name](world, None, STAGES[name].settings(small)).train())
    for parameter in (p for p in stage.parameters() if p.requires_grad):
        parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    batch = meta_batch(stage, "cpu")
    follow(stage, batch)  # layouts are made once
    measured = allocated(lambda: follow(stage, batch))
    planned = by_name(plan_stage(small, name))["activations"]
    assert measured / FACTOR < planned < measured * FACTOR


def test_several_gpus_share_the_batch_and_not_the_weights(small):
    one, four = (by_name(plan_stage(small, "navigation", gpus)) for gpus in (1, 4))
    assert one["weights"] == four["weights"] and 3 * four["activations"] < one["activations"]
    with pytest.raises(ValueError, match="a batch of 4 does not split among 3 processes"):
        plan_stage(small, "navigation", 3)


@pytest.mark.parametrize("name", STAGES)
def test_sharded_gpus_also_share_the_matrices_of_the_blocks(small, name):
    whole, split = (by_name(plan_stage(small, name, 4, sharded)) for sharded in (False, True))
    matrices = sum(p.numel() for p in World.random(small).transformer.block_matrices())
    items = {item.what: item for item in plan_stage(small, name, 4, True).items}
    for use in ("weights", "gradients", "averaged weights"):
        assert items[use].per_gpu(4) == whole[use] - 3 * matrices  # of four bytes each
    assert split["weights in bf16"] == whole["weights in bf16"] - 2 * matrices
    assert split["gathered blocks and gradients"] > 0 and split["activations"] == whole["activations"]
    assert plan_stage(small, name, 1, True) == plan_stage(small, name, 1)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_a_plan(preset):
    found = plan_stage(PRESETS[preset], "navigation")
    assert found.parameters == sum(
        p.numel()
        for p in memory_plan.meta_stage(
            STAGES["navigation"], PRESETS[preset], PRESETS[preset].curriculum.navigation
        ).world.parameters()
    )
    assert found.tokens > 0 and found.total > 16 * found.parameters
