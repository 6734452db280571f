"""Parallel decoding distillation: what a head learns is the frozen teacher's velocity where the heads before lead."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from world_model.config import TINY, FewStepConfig
from world_model.training.few_step import DataFreeFewStepStage, FewStepStage
from world_model.training.latents import LatentStore
from world_model.training.loop import step_generator
from world_model.training.memory_stage import Noisy
from world_model.training.optimizer import build_optimizers
from world_model.transformer.masks import chunk_of
from world_model.world import World

BLOCKS = (2, 2, 3, 1)
BOUNDS = [0, 2, 4, 7, 8]


@pytest.fixture
def stage_of(random_store):
    """A stage whose student is new; it may be given other settings or another world."""

    def make(world, kind=FewStepStage, **settings):
        config = FewStepConfig(**{"batch": 2, "frames": 5, "history": 12, "blocks": BLOCKS} | settings)
        world = copy.deepcopy(world)
        world.config = replace(world.config, curriculum=replace(world.config.curriculum, few_step=config))
        student = kind.starts_from(world).requires_grad_(True)
        n = world.config.chunk_latents
        return kind(student, random_store(student.config, 17, change=1 + n), config).eval()

    return make


def drawn(stage, step=0):
    return stage.batch(step_generator(0, step), step)


def with_stretches(batch, start, interval):
    """A batch all of whose chunks draw the same."""
    return batch | {name: torch.full_like(batch["start"], k) for name, k in (("start", start), ("interval", interval))}


def change(module, seed=3):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("kind", [FewStepStage, DataFreeFewStepStage])
def test_a_velocity_that_does_not_change_leaves_nothing_to_learn(tiny_world, stage_of, kind):
    world = copy.deepcopy(tiny_world)
    world.transformer.head.weight.zero_()
    stage = stage_of(world, kind)
    for step in range(4):
        assert float(stage(drawn(stage, step))[0].detach()) < 1e-10


@torch.no_grad()
def test_at_the_beginning_of_a_stretch_the_new_student_is_the_teacher(tiny_world, stage_of):
    stage = stage_of(tiny_world)
    batch = drawn(stage)
    for start in BOUNDS[:-1]:
        assert float(stage(with_stretches(batch, start, start))[0]) < 1e-8
    assert float(stage(with_stretches(batch, 4, 6))[0]) > 1e-3
    change(stage.world.parallel_decoder)
    assert float(stage(with_stretches(batch, 4, 4))[0]) > 1e-3


def test_the_target_is_the_frozen_teacher_at_the_latents_that_the_own_heads_lead_to(tiny_world, stage_of, monkeypatch):
    stage = stage_of(tiny_world)
    change(stage.world.parallel_decoder)
    batch = with_stretches(drawn(stage), 4, 6)
    first = int(batch["first_target"])
    asked = []
    teacher = copy.deepcopy(stage.teacher)
    monkeypatch.setattr(
        stage, "target", lambda b, noisy, _: asked.append(noisy) or teacher.guided_velocities(b, noisy, 1)
    )
    loss = stage(batch)[0]
    loss.backward()
    with torch.no_grad():
        decoder, levels = stage.decoder, stage.decoder.levels
        beginning = torch.full_like(batch["start"][:, first:], 4)
        noisy = stage.noisy_targets(batch, list(range(first, batch["latents"].shape[1])), levels[beginning])
        features = stage.features_of(batch, noisy)
        x = noisy.latents
        for k in (4, 5):
            x = x + (levels[k + 1] - levels[k]) * stage.in_place(decoder.velocity(features, beginning - 4 + k))
        torch.testing.assert_close(asked[0].latents, x, atol=1e-5, rtol=1e-4)
        assert (asked[0].levels == levels[6]).all()
        error = stage.in_place(decoder.velocity(features, beginning + 2)) - teacher.guided_velocities(
            batch, asked[0], 1
        )
        torch.testing.assert_close(loss, error.square().mean())
    learned = stage.decoder.bias.grad.abs().sum(1).nonzero().flatten().tolist()
    assert learned == [6]  # the walk is not trained through


def test_the_teacher_is_frozen(tiny_world, stage_of):
    stage = stage_of(tiny_world)
    batch = drawn(stage)
    first = int(batch["first_target"])
    levels = stage.decoder.levels[batch["interval"][:, first:]]
    noisy = Noisy(batch["noise"][:, first:], levels)
    with torch.no_grad():
        before = stage.target(batch, noisy, levels)
        change(stage.world)
        assert torch.equal(stage.target(batch, noisy, levels), before)
        kept = {name: value.clone() for name, value in stage.teacher.state_dict().items()}
    stage(batch)[0].backward()
    assert all(parameter.grad is None for parameter in stage.teacher.parameters())
    optimizers = build_optimizers(stage, stage.config)
    for optimizer in optimizers:
        optimizer.step()
    assert all(torch.equal(value, kept[name]) for name, value in stage.teacher.state_dict().items())
    assert not any(name.startswith("teacher.") for name in stage.weights())
    assert stage.teacher.world.parallel_decoder is None


@torch.no_grad()
def test_guidance_goes_from_the_velocity_without_captions_past_that_with_them(tiny_world, stage_of):
    stage = stage_of(tiny_world, guidance=3.0)
    batch = drawn(stage)
    first = int(batch["first_target"])
    noisy = stage.noisy_targets(batch, list(range(first, batch["latents"].shape[1])), batch["levels"][:, first:])
    teacher = stage.teacher
    given = teacher.velocities(teacher.features_of(batch, noisy))
    none = teacher.velocities(teacher.features_of(batch | {"codes": torch.zeros_like(batch["codes"])}, noisy))
    assert not torch.allclose(given, none, atol=1e-3)
    assert torch.equal(teacher.guided_velocities(batch, noisy, 1.0), given)
    torch.testing.assert_close(stage.target(batch, noisy, noisy.levels), none + 3 * (given - none))


@torch.no_grad()
def test_a_midpoint_step_asks_the_teacher_in_the_middle(tiny_world, stage_of):
    stage = stage_of(tiny_world, midpoint=True)
    batch = drawn(stage)
    first = int(batch["first_target"])
    interval = batch["interval"][:, first:]
    here, following = stage.decoder.levels[interval], stage.decoder.levels[interval + 1]
    noisy = Noisy(batch["noise"][:, first:], here)
    teacher = stage.teacher
    slope = teacher.guided_velocities(batch, noisy, 1)
    half = 0.5 * (following - here)[..., None, None, None] * slope
    middle = teacher.guided_velocities(batch, Noisy(noisy.latents + half, (here + following) / 2), 1)
    got = stage.target(batch, noisy, following)
    torch.testing.assert_close(got, middle)
    assert not torch.allclose(got, slope, atol=1e-2)


@torch.no_grad()
def test_without_data_samples_are_noise_walked_down_with_the_own_heads(tiny_world, stage_of):
    stage = stage_of(tiny_world, DataFreeFewStepStage)
    change(stage.world.parallel_decoder)
    batch = drawn(stage)
    first, decoder = int(batch["first_target"]), stage.decoder
    noise = batch["noise"][:, first:]
    x, beginning = noise, torch.zeros_like(batch["start"][:, first:])
    for start, end in zip(BOUNDS[:-1], BOUNDS[1:], strict=True):
        got = stage.block_starts(batch, beginning + start)
        assert (got.levels == decoder.levels[start]).all()
        torch.testing.assert_close(got.latents, x, atol=1e-4, rtol=1e-4)
        assert start or torch.equal(got.latents, noise)
        features = stage.features_of(batch, Noisy(x, decoder.levels[beginning + start]))
        x = x + stage.in_place(decoder.displacement(features, beginning + start, beginning + end))
    mixed = beginning.clone()
    mixed[:, -1] = 4
    together = stage.block_starts(batch, mixed).latents
    assert torch.equal(together[:, :-1], noise[:, :-1])
    torch.testing.assert_close(together[:, -1], stage.block_starts(batch, beginning + 4).latents[:, -1])

    before = stage(batch)[0]
    for name in ("latents", "coarse"):  # nothing has the newest latent in its history
        batch[name][:, -1] += 1
    assert torch.equal(stage(batch)[0], before)
    batch["noise"][:, -1] += 1
    assert not torch.isclose(stage(batch)[0], before)


def test_every_head_is_drawn_inside_its_stretch_and_learns(tiny_world, stage_of):
    stage = stage_of(tiny_world)
    pairs = set()
    for step in range(60):
        batch = drawn(stage, step)
        pairs |= set(zip(batch["start"].flatten().tolist(), batch["interval"].flatten().tolist(), strict=True))
    # the stretches of four, two and one evaluations
    stretches = [(0, 2), (2, 4), (4, 7), (7, 8), (0, 4), (4, 8), (0, 8)]
    assert pairs == {(start, k) for start, end in stretches for k in range(start, end)}
    change(stage.world.parallel_decoder)
    for step in range(12):
        stage(drawn(stage, step))[0].backward()
    for heads in (stage.decoder.weight, stage.decoder.bias):
        assert (heads.grad.flatten(1).abs().sum(1) > 0).all()
    for part in (stage.world.transformer.blocks, stage.world.compressor):
        assert all(parameter.grad is not None for parameter in part.parameters())
    assert all(parameter.grad is None for parameter in stage.world.text.parameters())  # the teacher's reading is kept


def test_the_latents_of_a_chunk_share_a_draw(chunked_world, stage_of):
    stage = stage_of(chunked_world, frames=9)
    chunks = torch.tensor([chunk_of(latent, 4) for latent in range(9)])
    firsts = [(chunks == chunk).nonzero()[0, 0] for chunk in chunks]
    differing = 0
    for step in range(8):
        batch = drawn(stage, step)
        assert torch.isfinite(stage(batch)[0])
        for name in ("start", "interval"):
            drew = batch[name][:, :9]
            assert torch.equal(drew, drew[:, firsts])
            differing += int(drew.unique(dim=1).shape[1] > 1)
    assert differing > 4


def test_a_world_without_heads_is_refused(tiny_world, random_store):
    with pytest.raises(ValueError, match="'tiny' has no interval heads; give it some with World.with_blocks"):
        FewStepStage(tiny_world, random_store(TINY, 17, change=5), FewStepConfig())


@pytest.mark.parametrize("kind", [FewStepStage, DataFreeFewStepStage])
def test_a_little_training_lowers_the_loss(stripes, tiny_world, kind):
    config = FewStepConfig(batch=4, frames=4, history=0, blocks=(4, 4), learning_rate=1e-3, matrix_learning_rate=3e-3)
    world = World.random(replace(TINY, curriculum=replace(TINY.curriculum, few_step=config)))
    world.load_state_dict(tiny_world.state_dict())
    stage = kind(kind.starts_from(world).requires_grad_(True), LatentStore(stripes, world.codec, TINY), config)
    optimizers = build_optimizers(stage, config)

    def judged():
        with torch.no_grad():
            return sum(float(stage(drawn(stage, step))[0]) for step in range(1000, 1006))

    before = judged()
    for step in range(40):
        stage(drawn(stage, step))[0].backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert judged() < 0.8 * before
