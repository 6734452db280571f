"""The memory plan of training against bytes of a real step."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from world_model.config import (
    PRESETS,
    TINY,
    CurriculumConfig,
    FewStepConfig,
    StableForcingConfig,
    TrainingConfig,
    VideoConfig,
)
from world_model.large import masks as large_masks
from world_model.large import plan
from world_model.large.expert import Expert
from world_model.training.memory_plan import STAGES, networks_of, plan_large_stage, plan_stage, window_settings
from world_model.training.meta_stages import ShapesCodec, computing, meta_batch, meta_stage, step, world_with
from world_model.training.optimizer import ExponentialMovingAverage, build_optimizers
from world_model.training.stages import FORCING_STAGES
from world_model.transformer import block, masks
from world_model.world import World

FACTOR = 1.25  # between planned and measured activations of a small world, either way
MEASURED = ["navigation", "frame_query", "history", "autoregressive", "few_step"]  # `pair` has a rollout
SMALL_STAGES = [name for name in STAGES if name not in FORCING_STAGES]


@pytest.fixture(scope="module")
def small():
    """Few clips of the tiny world, long enough that activations are not nothing."""
    sizes = {"batch": 4, "frames": 8}
    stages = {name: sizes | {"history": 24} for name in ("frame_query", "history", "autoregressive", "few_step")}
    stages |= {"navigation": sizes, "full_context": {"batch": 4, "frames": 4, "history": 12}}
    changed = {name: replace(getattr(TINY.curriculum, name), **given) for name, given in stages.items()}
    return replace(TINY, curriculum=replace(TINY.curriculum, **changed))


@pytest.fixture
def fused(monkeypatch):
    """Torch's fused attention in training too, where a CPU otherwise takes plain products."""

    def attention(query, key, value, mask):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    monkeypatch.setattr(block, "attention", attention)


@pytest.fixture(scope="module")
def large(single):
    """Larger than the toy world, so that what does not grow with the tokens is little."""
    clip = TrainingConfig(batch=2, frames=8, caption_rate=0.0)
    stages = {name: replace(clip, history=8) for name in ("frame_query", "history", "autoregressive")}
    stages["few_step"] = FewStepConfig(**vars(replace(clip, history=8)) | {"blocks": (28, 28, 36, 36), "guidance": 2.0})
    stages["stable_forcing"] = StableForcingConfig(
        batch=2, frames=4, start=4, clips=2, evaluations=(4,), caption_rate=0.0, guidance=2.0
    )
    curriculum = replace(CurriculumConfig(), navigation=clip, **stages)
    sizes = replace(single.world.transformer, width=96, ffn_width=256, depth=3)
    video = VideoConfig(height=128, width=192)
    return replace(single, world=replace(single.world, transformer=sizes, video=video, curriculum=curriculum))


@pytest.fixture(scope="module")
def pair(large):
    """The same of two experts."""
    return replace(large, experts=("high", "low"))


@pytest.fixture(scope="module")
def rollout_plans(pair, large):
    """The plans of rollouts of two experts, and of one."""
    settings = STAGES["stable_forcing"].settings(pair.world)
    return [plan_large_stage(config, "stable_forcing", settings) for config in (pair, large)]


def by_name(plan):
    return {item.what: item.bytes for item in plan.items}


def measured(stage, allocated):
    """Bytes of a step, of gradients those alone that are not whole yet."""
    for parameter in (p for p in stage.parameters() if p.requires_grad):
        parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    batch = meta_batch(stage, "cpu")
    step(stage, batch)  # what is made once
    for layouts in (masks, large_masks):  # but for masks, which a plan counts: a GPU has a copy
        layouts.teacher_forcing.cache_clear()
        layouts.bidirectional.cache_clear()
    return allocated(lambda: step(stage, batch))


def small_stage(name, config):
    """A small world's stage, with numbers."""
    world = STAGES[name].starts_from(World.random(config))
    return STAGES[name](world, None, STAGES[name].settings(config)).train()


def large_stage(name, config, recompute=True):
    """A large world's stage, with numbers."""
    kind, settings = STAGES[name], STAGES[name].settings(config.world)
    world, *teacher = (world_with(kind, config, settings) for _ in range(2 if name in FORCING_STAGES else 1))
    stage = kind(kind.starts_from(world), None, settings, *teacher).train()
    if teacher:
        stage.student.chunks._codec = ShapesCodec(config.world)
    for part in networks_of(stage).values():
        part.transformer.recompute = recompute
    return stage


@pytest.mark.parametrize("name", SMALL_STAGES)
def test_weights_and_optimisers_are_planned_to_the_byte(small, name):
    check_updates(small_stage(name, small), plan_stage(small, name))


@pytest.mark.parametrize("name", MEASURED)
def test_those_of_large_worlds_too_of_every_network(large, name):
    settings = STAGES[name].settings(large.world)
    check_updates(large_stage(name, large), plan_large_stage(large, name, settings))


def test_those_of_rollouts_too_of_both_experts_in_every_part(pair, large, rollout_plans):
    of_pair, of_one = rollout_plans
    check_updates(large_stage("stable_forcing", pair), of_pair)
    check_updates(large_stage("stable_forcing", large), of_one)
    assert by_name(of_pair)["teacher, high: weights"] == by_name(of_pair)["teacher, low: weights"]
    assert by_name(of_pair)["teacher, low: weights"] == by_name(of_one)["teacher: weights"]


def test_other_stages_of_two_experts_hold_one(pair, large):
    settings = STAGES["autoregressive"].settings(pair.world)
    plan, one = (plan_large_stage(config, "autoregressive", settings) for config in (pair, large))
    assert plan == one
    with pytest.raises(ValueError, match="use few_step"):
        plan_large_stage(pair, "few_step_data_free", STAGES["few_step"].settings(pair.world))


def check_updates(stage, plan):
    optimizers = build_optimizers(stage, stage.config)
    trained = [p for p in stage.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
    states = [value for o in optimizers for state in o.state.values() for value in state.values()]
    average = ExponentialMovingAverage(stage.weights(), 0.9)
    worlds, found = networks_of(stage).values(), by_name(plan)

    def together(use):
        return sum(size for what, size in found.items() if use in what and "bf16" not in what)

    held = sum(4 * x.numel() for world in worlds for x in world.state_dict().values())
    assert together("weights") - together("averaged") == held
    assert together("gradients") - found["gathered blocks and gradients"] == sum(p.grad.nbytes for p in trained)
    momenta = [x for x in states if isinstance(x, torch.Tensor) and x.ndim]
    assert together("optimiser") == sum(x.nbytes for x in momenta)
    watched = [name for name in average.values if name.startswith("watch.")]
    assert together("averaged") == 4 * sum(x.numel() for name, x in average.values.items() if name not in watched)
    frozen = [what for what in found if what.startswith("teacher") and found[what]]
    assert all(what.endswith(": weights") for what in frozen) and bool(frozen) == (len(worlds) > 1)


@pytest.mark.parametrize("name", SMALL_STAGES)
def test_activations_are_near_those_measured(small, name, fused, allocated):
    found = measured(computing(small_stage(name, small)), allocated)
    planned = by_name(plan_stage(small, name))["activations"]
    assert found / FACTOR < planned < found * FACTOR


@pytest.mark.parametrize(
    ("name", "recompute"), [*((name, True) for name in MEASURED), ("navigation", False), ("few_step", False)]
)
def test_activations_of_a_large_world_are_those_measured(large, name, recompute, fused, allocated, tolerance):
    found = measured(computing(large_stage(name, large, recompute)), allocated)
    plan = plan_large_stage(large, name, STAGES[name].settings(large.world), recompute=recompute)
    planned = by_name(plan)["activations"]
    assert planned == pytest.approx(found, rel=tolerance)


def test_activations_of_a_rollout_of_two_experts_are_those_measured(pair, rollout_plans, fused, allocated, tolerance):
    found = measured(computing(large_stage("stable_forcing", pair)), allocated)
    assert by_name(rollout_plans[0])["activations"] == pytest.approx(found, rel=tolerance)


def test_several_gpus_share_the_batch_and_not_the_weights(small):
    one, four = (by_name(plan_stage(small, "navigation", gpus)) for gpus in (1, 4))
    assert one["weights"] == four["weights"] and 3 * four["activations"] < one["activations"]
    with pytest.raises(ValueError, match="a batch of 4 does not split among 3 processes"):
        plan_stage(small, "navigation", 3)


@pytest.mark.parametrize("name", ["navigation", "autoregressive"])
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
    world = meta_stage(STAGES["navigation"], PRESETS[preset], PRESETS[preset].curriculum.navigation).world
    assert found.parameters == sum(p.numel() for p in world.parameters())
    assert found.tokens > 0 and found.total > 16 * found.parameters


def test_several_gpus_split_every_network_of_distillation_in_the_matrices_of_its_blocks_alone(large):
    settings = window_settings(large, "stable_forcing", 12, batch=4)
    items = {item.what: item for item in plan_large_stage(large, "stable_forcing", settings, gpus=4).items}
    expert = Expert(large)
    count, split = (sum(x.numel() for x in part) for part in (expert.parameters(), expert.transformer.block_matrices()))
    heads = 128 * 4 * 4 * (96 + 1)
    for role, own in (("student", count + heads), ("teacher", count), ("fake score", count)):
        assert items[f"{role}: weights"].per_gpu(4) == split + 4 * (own - split)
        if role != "teacher":
            assert items[f"{role}: gradients"].per_gpu(4) == split + 4 * (own - split)
            assert items[f"{role}: optimiser (AdamW)"].per_gpu(4) == 2 * split + 8 * (own - split)
            assert items[f"{role}: weights in bf16"].per_gpu(4) == 2 * (own - split)


def test_windows_are_split_into_history_and_what_is_learned(large):
    parts = {name: window_settings(large, name, 12) for name in ("navigation", "history", "autoregressive")}
    assert [(found.history, found.frames) for found in parts.values()] == [(0, 12), (4, 8), (4, 8)]
    rollout = window_settings(large, "stable_forcing", 16)
    assert (rollout.start, rollout.clips, rollout.frames) == (4, 3, 4)
    assert window_settings(large, "stable_forcing").window == 8


def test_the_plan_of_the_largest_preset_takes_seconds():
    start, config = time.process_time(), plan.PRESETS["worldplay2-14b"]
    found = plan_large_stage(config, "autoregressive", window_settings(config, "autoregressive", batch=8), gpus=8)
    assert time.process_time() - start < 10
    assert found.parameters == 17_460_184_640 and found.tokens == 1456 * (1 + 4 + 16) + 91 * 126
