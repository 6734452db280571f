"""What a large student does in training is what users get: its rollouts are the published ones, replayed with
gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from world_model.large.captions import KnownCaptions
from world_model.large.conditioning import small_video
from world_model.large.expert import Expert
from world_model.large.folder import LargeWorld
from world_model.large.pair import TrainablePair
from world_model.large.rollout import LargeRollout, few_step_chunk
from world_model.large.trainable import TrainableWorld
from world_model.training.large_rollout import student_of

LATENTS, N, START = 12, 4, 4


def draw(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["one", "two"])
def world(request, single, toy, lively_experts):
    """A distilled world of one expert, or of two."""
    large = LargeWorld(toy if request.param == "two" else replace(single, clean_picture=False), "fast")
    plain = lively_experts(replace(large, variant="ar")).items()
    experts = {name: TrainableWorld(large, expert, expert=name) for name, expert in plain}
    world = TrainablePair(large, experts) if len(experts) > 1 else experts["only"]
    world = world.with_blocks((28, 28, 36, 36))
    with torch.no_grad():
        for expert in world.experts.values():
            for heads in expert.parallel_decoder.parameters():
                heads += 0.1 * torch.randn(heads.shape, generator=torch.Generator().manual_seed(2))
    world.know(KnownCaptions([draw(8, 3, 8), draw(9, 2, 8)], 4, 8))
    return world.eval()


@pytest.fixture
def student(world, blocks):
    student = student_of(world)
    student.chunks.codec = lambda device: blocks
    return student


@pytest.fixture
def batch(student):
    """Windows whose caption changes with the last chunk."""
    later = torch.arange(LATENTS) >= 8
    latents = 0.3 * draw(0, 2, LATENTS, 4, 8, 8)
    return student.draw(latents.shape, 4, torch.Generator().manual_seed(1)) | {
        "latents": latents,
        "condition": draw(5, 2, LATENTS, 8, 8, 8),
        "coarse_condition": draw(3, 2, LATENTS // 2, 8, 2, 2).repeat_interleave(2, dim=1),
        "actions": 3 * draw(4, 2, LATENTS, 6),
        "codes": torch.tensor([[[1], [2]], [[2], [1]]]),
        "active": torch.stack([~later, later], dim=1).expand(2, -1, -1),
    }


def released(world):
    """The world's networks as a rollout has them, with fused heads."""
    experts = {name: Expert(world.large.config, few_step=True) for name in world.experts}
    for name, expert in experts.items():
        expert.load_state_dict(dict(world.experts[name].released(torch.float32)))
        expert.eval().requires_grad_(False)
    return experts


@torch.no_grad()
def test_a_student_rolls_out_as_the_released_world_does(world, student, batch, blocks):
    rollout = student.roll_out(batch, START, [0, 3])
    theirs = LargeRollout(released(world), batch["condition"], batch["coarse_condition"][:, ::2])
    encoder = decoder = None
    for first in range(0, LATENTS, N):
        where = slice(first, first + N)
        text = world.text(torch.tensor([[1], [2]] if first < 8 else [[2], [1]]))
        rows, fresh = batch["actions"][:, where], list(batch["fresh"][:, :, where])
        latents = batch["latents"][:, where]
        if first >= START:
            latents = few_step_chunk(theirs, batch["noise"][:, where], rows, text, partial(fresh.pop, 0))
        torch.testing.assert_close(rollout.latents[:, where], latents, rtol=1e-3, atol=1e-3)
        frames, decoder = blocks.decode(latents, decoder)
        small, encoder = blocks.encode(small_video(frames), encoder)
        torch.testing.assert_close(student.coarse(rollout)[:, where][:, ::2], small, rtol=1e-3, atol=1e-3)
        theirs.commit(latents, small, rows, text)
    recorded = student.decode(rollout.latents)
    assert rollout.frames.shape[1] == 4 * LATENTS and torch.equal(rollout.frames[:, 3:], recorded)


def test_a_replay_repeats_the_rollout_with_gradients(world, student, batch):
    rollout = student.roll_out(batch, START, [3, 3])
    replayed = dict(enumerate(student.replay(batch, rollout)))
    for index, (where, clean) in replayed.items():
        assert where == slice(START + N * index, START + N * index + N)
        torch.testing.assert_close(clean.detach(), rollout.latents[:, where], rtol=1e-4, atol=1e-4)
        assert clean.requires_grad
    world.requires_grad_(True).zero_grad()
    for _, clean in student.replay(batch, rollout):
        clean.square().mean().backward()
    last = list(world.experts.values())[-1]  # of two that of the low noise levels
    assert last.parallel_decoder.weight.grad.abs().sum() > 0
    assert last.transformer.blocks[0].action.out.weight.grad.abs().sum() > 0
    assert last.transformer.head.weight.grad is None


@torch.no_grad()
def test_a_student_answers_its_controls(student, batch):
    assert student.response(batch, START) > 0
