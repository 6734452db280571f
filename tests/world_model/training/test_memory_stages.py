"""The stages with memory: what they draw, what their targets can know, and that training makes them use it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from world_model.config import TINY
from world_model.thinning import kept_slots
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.frame_query import FrameQueryStage
from world_model.training.full_context import FullContextStage
from world_model.training.history import HistoryStage
from world_model.training.latents import LatentStore
from world_model.training.loop import step_generator
from world_model.transformer.masks import bidirectional, frame_query, teacher_forcing
from world_model.world import World

SETTINGS = replace(TINY.curriculum.autoregressive, batch=2, frames=4, history=12, growth_steps=10)


def stage_of(kind, stripes):
    world = World.random(TINY)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in world.transformer.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return kind(world, LatentStore(stripes, world.codec, TINY), SETTINGS).eval()


def drawn(stage, step=100, seed=3):
    """A batch with history."""
    batches = (stage.batch(step_generator(seed + k, step), step) for k in range(20))
    return next(batch for batch in batches if batch["latents"].shape[1] > SETTINGS.frames)


def test_histories_grow_with_the_steps_and_fit_the_recordings(stripes):
    stage = stage_of(AutoregressiveStage, stripes)
    lengths = {step: {stage.draw_history(step_generator(0, k), step) for k in range(30)} for step in (0, 8, 9, 1000)}
    assert lengths[0] == lengths[8] == {0}
    assert lengths[9] == lengths[1000] == {0, 12}
    stage.config = replace(SETTINGS, history=400)
    assert {stage.draw_history(step_generator(0, k), 1000) for k in range(30)} == {0, 12}  # clips have 20 latents


@torch.no_grad()
def test_a_query_knows_the_memory_and_no_other_query(stripes):
    stage = stage_of(FrameQueryStage, stripes)
    batch = drawn(stage)
    queried = batch["queried"].tolist()
    layout = frame_query(TINY, batch["latents"].shape[1], tuple(queried))
    assert not layout.adjacent and layout.slots == kept_slots(7, 2, TINY.memory.budget_slots)
    targets = layout.mask[layout.target_tokens, layout.target_tokens]
    tokens = TINY.token_grid[0] * TINY.token_grid[1]
    blocks = torch.block_diag(*[torch.ones(tokens, tokens, dtype=torch.bool)] * len(queried))
    assert torch.equal(targets, blocks)
    assert (batch["hidden"][:, queried] == 0).all() and (batch["hidden"] > 0).sum() == batch["hidden"].numel() - 2 * 4
    loss = stage(batch)[0]
    compress = stage.compress
    stage.compress = lambda *given: compress(*given).roll(1, 0)
    assert not torch.isclose(stage(batch)[0], loss)


@torch.no_grad()
def test_a_clip_of_the_history_stage_sees_itself_in_both_directions(stripes):
    stage = stage_of(HistoryStage, stripes)
    batch = drawn(stage)
    first = int(batch["first_target"])
    before = stage.predict(batch)
    batch["latents"][:, -1] += 1
    assert not torch.allclose(stage.predict(batch)[:, 0], before[:, 0])
    assert (batch["levels"] == batch["levels"][:, :1]).all()
    layout = bidirectional(TINY, batch["latents"].shape[1], first)
    assert layout.adjacent == (first - 2, first - 1) and set(layout.targets) == set(range(first, first + 4))


@torch.no_grad()
def test_an_autoregressive_target_never_sees_what_comes_after_it(stripes):
    stage = stage_of(AutoregressiveStage, stripes)
    batch = drawn(stage)
    before = stage.predict(batch)
    batch["latents"][:, -1] += 1
    batch["coarse"][:, -1] += 1
    after = stage.predict(batch)
    torch.testing.assert_close(after[:, :-1], before[:, :-1])
    assert not torch.allclose(after[:, -1], before[:, -1])


@torch.no_grad()
@pytest.mark.parametrize("kind", [AutoregressiveStage, HistoryStage])
def test_deep_targets_depend_on_the_compressed_past(kind, stripes):
    stage = stage_of(kind, stripes)
    batch = drawn(stage)
    before = stage.predict(batch)
    batch["latents"][:, 1] += 1  # of the oldest slot, which is always kept; far outside the raw window of two
    batch["coarse"][:, 2] += 1
    assert not torch.allclose(stage.predict(batch), before)


def test_full_context_has_no_slots_and_all_latents(stripes):
    world = FullContextStage.starts_from(World.random(TINY))
    layout = teacher_forcing(world.config, 20, 16)
    assert layout.slots == () and layout.adjacent == tuple(range(1, 19))


def test_deep_windows_hold_what_a_rollout_still_has():
    config = replace(TINY, memory=replace(TINY.memory, budget_slots=5))
    layout = teacher_forcing(config, 60, 50)
    first = kept_slots(24, 2, 5)  # slots that are complete before latent 50: those that end with 2, 4 .. 48
    tokens = layout.group == len(layout.latent) - len(layout.targets)
    slots = [slot for k, slot in enumerate(layout.slots) if layout.mask[tokens][0, layout.group == k + 1].all()]
    assert tuple(slots) == first
