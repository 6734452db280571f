"""The student's rollouts in training are those of the stream, and a replay finds what the rollout went through."""

from __future__ import annotations

import pytest
import torch

from world_model.codec import to_uint8
from world_model.memory import coarse_view
from world_model.training import self_rollout
from world_model.training.loop import step_generator


@pytest.fixture(params=["tiny_world", "chunked_world"])
def stage(request, forcing):
    """With rollouts that are long enough for the memory to forget."""
    world = request.getfixturevalue(request.param)
    return forcing(world, clips=6 if world.config.chunk_latents == 1 else 3)


def drawn(stage, step=0):
    return stage.batch(step_generator(0, step), step)


def chunks_of(stage, batch):
    n, start = stage.world.config.chunk_latents, stage.config.start
    return [slice(first, first + n) for first in range(start, batch["latents"].shape[1], n)]


@torch.no_grad()
def test_a_rollout_is_what_the_stream_generates_also_when_the_caption_changes(stage):
    batch = drawn(stage)
    start, store = stage.config.start, stage.store
    rollout = stage.student.roll_out(batch, start, batch["exits"].tolist())
    assert torch.equal(rollout.latents[:, :start], batch["latents"][:, :start])
    stream = stage.world.stream(2)
    stream.reset(
        [0, 1], list(batch["latents"][:, :start]), [store.caption(0)] * 2, [0, 1], list(batch["actions"][:, :start])
    )
    r = stream.frames_per_latent
    for where in chunks_of(stage, batch):
        stream.set_caption([0, 1], event=store.caption(where.start).event)
        noise = iter(batch["noise"][:, where])
        stream._noise = lambda _, noise=noise: next(noise)
        frames = stream.step(batch["actions"][:, where])
        torch.testing.assert_close(rollout.latents[:, where], stream.latents, atol=2e-3, rtol=2e-3)
        decoded = to_uint8(rollout.frames[:, where.start * r : where.stop * r])
        assert (decoded.int() - frames.int()).abs().max() <= 2
    assert {store.caption(where.start).event for where in chunks_of(stage, batch)} == {"None", "it rains"}


@torch.no_grad()
def test_a_full_rollout_is_denoised_to_the_end_wherever_its_moments_are(stage):
    batch = drawn(stage)
    chunks, start = chunks_of(stage, batch), stage.config.start
    last = len(stage.world.config.flow.blocks) - 1
    at_end = stage.student.roll_out(batch, start, [last] * len(chunks))
    early = stage.student.roll_out(batch, start, [0] * len(chunks))
    assert torch.equal(at_end.latents, early.latents) and torch.equal(at_end.frames, early.frames)
    for where, moment in zip(chunks, early.moments, strict=True):
        assert moment.index == 0 and torch.equal(moment.x, batch["noise"][:, where])
    for where, clean in stage.student.replay(batch, at_end):
        torch.testing.assert_close(clean, at_end.latents[:, where], atol=1e-4, rtol=1e-4)
    replayed = dict((where.start, clean) for where, clean in stage.student.replay(batch, early))
    assert [*replayed] == [where.start for where in chunks]
    assert not any(torch.allclose(replayed[w.start], early.latents[:, w], atol=1e-2) for w in chunks)


@torch.no_grad()
def test_a_truncated_rollout_holds_what_its_moments_take_for_clean(stage):
    batch = drawn(stage)
    chunks, start = chunks_of(stage, batch), stage.config.start
    exits = [number % 4 for number in range(len(chunks))]
    rollout = stage.student.roll_out(batch, start, exits, truncated=True)
    assert [moment.index for moment in rollout.moments] == exits
    for where, clean in stage.student.replay(batch, rollout):
        torch.testing.assert_close(clean, rollout.latents[:, where], atol=1e-4, rtol=1e-4)
    full = stage.student.roll_out(batch, start, exits)
    assert torch.equal(full.moments[0].x, rollout.moments[0].x)
    assert not torch.allclose(full.latents[:, chunks[0]], rollout.latents[:, chunks[0]], atol=1e-2)


@torch.no_grad()
def test_truncation_costs_only_the_evaluations_up_to_the_moment(stage):
    batch = drawn(stage)
    chunks = len(chunks_of(stage, batch))
    runs = []
    handle = stage.world.transformer.register_forward_hook(lambda *_: runs.append(1))
    counts = []
    for exits, truncated in (([0] * chunks, True), ([3] * chunks, True), ([0] * chunks, False)):
        runs.clear()
        stage.student.roll_out(batch, stage.config.start, exits, truncated=truncated)
        counts.append(len(runs))
    handle.remove()
    assert counts[1] == counts[2] == counts[0] + 3 * chunks


def test_only_a_replay_makes_a_graph_and_only_of_its_own_chunk(stage):
    batch = drawn(stage)
    rollout = stage.student.roll_out(batch, stage.config.start, batch["exits"].tolist())
    assert not any(tensor.requires_grad for tensor in (rollout.latents, rollout.frames, rollout.moments[0].x))
    heads = stage.world.parallel_decoder.bias
    for _, clean in stage.student.replay(batch, rollout):
        assert clean.requires_grad
        clean.square().mean().backward()  # would fail if a graph of an earlier chunk were part of it
    assert heads.grad is not None and stage.world.codec.latent_mean.grad is None


@torch.no_grad()
def test_coarse_latents_are_those_of_the_decoded_slots(stage):
    batch = drawn(stage)
    rollout = stage.student.roll_out(batch, stage.config.start, batch["exits"].tolist())
    coarse, config = stage.student.coarse(rollout), stage.world.config
    r, stride = config.codec.temporal_factor, config.memory.temporal_stride
    assert rollout.frames.shape[1] == r * rollout.latents.shape[1]
    for latent in range(coarse.shape[1]):
        if latent and latent % stride == 0:
            pictures = rollout.frames[:, (latent - stride + 1) * r : (latent + 1) * r]
            expected = coarse_view(pictures, config, stage.world.codec)
            torch.testing.assert_close(coarse[:, latent], expected, atol=1e-4, rtol=1e-4)
        else:
            assert not coarse[:, latent].any()


@torch.no_grad()
def test_the_response_is_that_to_a_turn(stage, monkeypatch):
    batch = drawn(stage)
    response = stage.student.response(batch, stage.config.start)
    assert response > 1e-3
    monkeypatch.setattr(self_rollout, "TURN", 0.0)
    assert stage.student.response(batch, stage.config.start) == 0
