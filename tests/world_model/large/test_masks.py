"""One masked pass of a training stage over many chunks is what the rollout does chunk by chunk."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from world_model.config import TrainingConfig
from world_model.large import masks
from world_model.large.captions import KnownCaptions
from world_model.large.folder import LargeWorld
from world_model.large.rollout import LargeRollout
from world_model.large.trainable import TrainableWorld
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.frame_query import FrameQueryStage
from world_model.training.history import HistoryStage

LATENTS = 16


def draw(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=[4, 2])
def expert(request, single, lively_experts):
    """With chunks of one group of compressed frames, and of half a one."""
    config = replace(single, world=replace(single.world, chunk_latents=request.param))
    return lively_experts(LargeWorld(config, "ar"))["only"]


@pytest.fixture
def world(expert):
    world = TrainableWorld(LargeWorld(expert.config, "ar"), expert).eval()
    world.text = KnownCaptions([draw(8, 3, 8), draw(9, 2, 8)], 4, 8)
    return world


@pytest.fixture
def batch():
    """Windows whose caption changes with the chunk that begins at latent 8."""
    coarse, coarse_condition = (x.repeat_interleave(2, dim=1) for x in (draw(2, 2, 8, 4, 2, 2), draw(3, 2, 8, 8, 2, 2)))
    latents, actions = draw(0, 2, LATENTS, 4, 8, 8), 3 * draw(4, 2, LATENTS, 6)
    later = torch.arange(LATENTS) >= 8
    return {
        "latents": latents,
        "noise": draw(1, 2, LATENTS, 4, 8, 8),
        "coarse": coarse,
        "condition": draw(5, 2, LATENTS, 8, 8, 8),
        "coarse_condition": coarse_condition,
        "actions": actions,
        "sink": latents[:, 0],
        "sink_actions": actions[:, 0],
        "codes": torch.tensor([[[1], [2]]] * 2),
        "active": torch.stack([~later, later], dim=1).expand(2, -1, -1),
        "history_level": torch.zeros(2),
        "history_noise": torch.zeros(2, LATENTS, 4, 8, 8),
        "coarse_noise": torch.zeros_like(coarse),
    }


def rolled_out(expert, world, batch, levels, chunks, bidirectional=False):
    """The velocities of each chunk of given lengths, the true one being committed afterwards."""
    rollout = LargeRollout({"only": expert}, batch["condition"], batch["coarse_condition"][:, ::2], bidirectional)
    noisy = (1 - levels[..., None, None, None]) * batch["latents"] + levels[..., None, None, None] * batch["noise"]
    velocities, first = [], 0
    for length in chunks:
        where, small = slice(first, first + length), slice(first, first + length, 2)
        text = world.text(batch["codes"][:, int(first >= 8)])
        rows = batch["actions"][:, where]
        velocities.append(rollout.evaluate("only", noisy[:, where], 1000 * levels[:, where], rows, text)[0])
        rollout.commit(batch["latents"][:, where], batch["coarse"][:, small], rows, text)
        first += length
    return torch.cat(velocities, dim=1)


@torch.no_grad()
@pytest.mark.parametrize("first_target", [0, 8, 12])
def test_teacher_forcing_equals_the_cached_rollout(expert, world, batch, first_target):
    n = world.config.chunk_latents
    levels = torch.rand(2, LATENTS // n, generator=torch.Generator().manual_seed(7)).repeat_interleave(n, dim=1)
    stage = AutoregressiveStage(world, None, TrainingConfig())
    predicted = stage.predict(batch | {"levels": levels, "first_target": torch.tensor(first_target)})
    expected = rolled_out(expert, world, batch, levels, [n] * (LATENTS // n))[:, first_target:]
    torch.testing.assert_close(predicted, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("first_target", [0, 8])
def test_a_clip_and_its_memory_equal_the_bidirectional_rollout(expert, world, batch, first_target):
    batch["active"] = torch.tensor([False, True]).expand(2, LATENTS, -1)  # memory reads the caption of the clip there
    levels = torch.full((2, LATENTS), 0.6)
    stage = HistoryStage(world, None, TrainingConfig())
    predicted = stage.predict(batch | {"levels": levels, "first_target": torch.tensor(first_target)})
    batch["codes"] = torch.full((2, 2, 1), 2)
    chunks = [first_target, LATENTS - first_target] if first_target else [LATENTS]
    expected = rolled_out(expert, world, batch, levels, chunks, bidirectional=True)[:, first_target:]
    torch.testing.assert_close(predicted, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_query_sees_memory_and_not_the_other_queries(world, batch):
    queried = torch.tensor([3, 10])
    levels = torch.full((2, 2), 0.5)
    stage = FrameQueryStage(world, None, TrainingConfig())
    zeros = torch.zeros(2, LATENTS)
    batch |= {"queried": queried, "hidden": zeros, "levels": levels}
    layout = masks.frame_query(world.config, LATENTS, (3, 10))
    assert layout.slot_latents.tolist() == list(range(0, LATENTS, 2)) and not layout.adjacent
    seen = layout.mask[layout.target_tokens, layout.target_tokens]
    assert torch.equal(seen, torch.block_diag(*[torch.ones(16, 16, dtype=torch.bool)] * 2))
    before = stage(batch)[0]
    stage.compress = lambda *given: world.compress(*given).roll(1, 0)
    assert not torch.isclose(stage(batch)[0], before)
    assert masks.stored_latents(world.config, 6) == [1, 2, 3, 4, 5]
