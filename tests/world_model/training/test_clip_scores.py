"""The scores of a clip: what they compare, what they see, and what it costs."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from world_model.flow import add_noise
from world_model.training.clip_scores import ScoredRollout, check_teacher
from world_model.training.loop import step_generator
from world_model.training.memory_stage import Noisy
from world_model.training.stable_forcing import FullContextForcingStage, StableForcingStage


def change(module, seed=3):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def scored(stage, change_fake=True):
    """A batch and recorded latents in place of a rollout's; the fake score has moved on."""
    batch = stage.batch(step_generator(0, 0), 0)
    if change_fake:
        change(stage.scores.fake.world.transformer)
    start, size, total = stage.config.start, stage.config.frames, batch["latents"].shape[1]
    clips = [slice(first, first + size) for first in range(start, total, size)]
    return batch, ScoredRollout.of(batch, batch["latents"].clone(), batch["coarse"].clone(), clips)


def velocities(score, batch, rollout, clip, level, guidance=1.0):
    """A score's velocities of a clip by its masked pass."""
    x = rollout.batch["latents"][:, clip]
    noisy = Noisy(add_noise(x, batch["level_noise"][:, clip], level), level[:, None].expand(x.shape[:2]))
    return noisy.latents, score.guided_velocities(rollout.window(clip), noisy, guidance)


@pytest.mark.parametrize("name", ["tiny_world", "chunked_world"])
@torch.no_grad()
def test_two_scores_that_agree_give_no_direction(name, request, forcing):
    stage = forcing(request.getfixturevalue(name))
    for normalised in (True, False):
        stage.scores.config = replace(stage.config, normalised=normalised)
        batch, rollout = scored(stage, change_fake=False)
        for clip, level in zip(rollout.clips, batch["levels"], strict=True):
            direction = stage.scores.direction(rollout, clip, level, batch["level_noise"])
            assert direction.abs().max() < 1e-4  # rounding


@torch.no_grad()
def test_the_direction_leads_from_the_fake_to_the_real_clean_estimate(tiny_world, forcing):
    stage = forcing(tiny_world, guidance=2.5)
    batch, rollout = scored(stage)
    clip, level = rollout.clips[1], torch.tensor([0.3, 0.8])
    noisy, v_real = velocities(stage.scores.real, batch, rollout, clip, level, 2.5)
    _, v_fake = velocities(stage.scores.fake, batch, rollout, clip, level)
    sigma = level.reshape(2, 1, 1, 1, 1)
    real, fake = noisy - sigma * v_real, noisy - sigma * v_fake
    got = stage.scores.direction(rollout, clip, level, batch["level_noise"])
    for row in range(2):  # each window by a distance of its own
        distance = (rollout.batch["latents"][row, clip] - real[row]).abs().mean()
        torch.testing.assert_close(got[row], (real - fake)[row] / distance, atol=1e-4, rtol=1e-4)
    stage.scores.config = replace(stage.config, normalised=False)
    plain = stage.scores.direction(rollout, clip, level, batch["level_noise"])
    torch.testing.assert_close(plain, (real - fake) / sigma, atol=1e-4, rtol=1e-4)
    stage.scores.config = replace(stage.config, guidance=1.0)
    assert not torch.allclose(stage.scores.direction(rollout, clip, level, batch["level_noise"]), got, atol=1e-3)


@pytest.mark.parametrize("name", ["tiny_world", "chunked_world"])
@torch.no_grad()
def test_a_clip_is_scored_by_what_came_before_it_and_nothing_after(name, request, forcing):
    stage = forcing(request.getfixturevalue(name))
    batch, rollout = scored(stage)
    clip, level = rollout.clips[1], batch["levels"][1]
    before = stage.scores.direction(rollout, clip, level, batch["level_noise"])
    later, earlier = copy.deepcopy(rollout), copy.deepcopy(rollout)
    for part in ("latents", "coarse", "actions"):
        later.batch[part][:, clip.stop :] += 1
    later.batch["active"][:, clip.stop :] ^= True
    assert torch.equal(stage.scores.direction(later, clip, level, batch["level_noise"]), before)
    earlier.batch["latents"][:, 1 : clip.start - 2] += 1  # not in the raw window
    assert not torch.allclose(stage.scores.direction(earlier, clip, level, batch["level_noise"]), before, atol=1e-4)


@torch.no_grad()
def test_a_clip_sees_itself_in_both_directions_and_the_captions_in_force(tiny_world, forcing):
    stage = forcing(tiny_world)
    batch, rollout = scored(stage)
    clip, level = rollout.clips[1], torch.tensor([0.5, 0.5])
    before = velocities(stage.scores.real, batch, rollout, clip, level)[1]
    other = copy.deepcopy(rollout)
    other.batch["latents"][:, clip.stop - 1] += 1
    after = velocities(stage.scores.real, batch, other, clip, level)[1]
    assert not torch.allclose(after[:, 0], before[:, 0], atol=1e-4)
    other = copy.deepcopy(rollout)
    other.batch["active"][:, clip] ^= True
    assert not torch.allclose(velocities(stage.scores.real, batch, other, clip, level)[1], before, atol=1e-4)


@torch.no_grad()
def test_a_score_reads_one_clip_and_a_bounded_memory_and_with_full_context_everything(tiny_world, forcing):
    tokens = {StableForcingStage: [], FullContextForcingStage: []}
    config = tiny_world.config
    full, small = (grid[0] * grid[1] for grid in (config.token_grid, config.memory_grid))
    lengths = []
    for clips in (3, 6, 12):
        for kind, counts in tokens.items():
            stage = forcing(tiny_world, kind, clips)
            batch, rollout = scored(stage, change_fake=False)
            seen = []
            for score in (stage.scores.real, stage.scores.fake):
                score.world.transformer.register_forward_pre_hook(
                    lambda _, given, seen=seen: seen.append(given[0].shape[1])
                )
            stage.scores.direction(rollout, rollout.clips[-1], batch["levels"][-1], batch["level_noise"])
            assert len(seen) == 2 and seen[0] == seen[1]
            counts.append(seen[0])
        lengths.append(batch["latents"].shape[1])
    memory = config.memory
    bound = full * (1 + memory.adjacent_latents + stage.config.frames) + small * memory.budget_slots
    assert tokens[StableForcingStage][1:] == [bound] * 2 and tokens[StableForcingStage][0] <= bound
    assert tokens[FullContextForcingStage] == [full * length for length in lengths]


def test_the_fake_score_learns_the_clips_by_flow_matching(tiny_world, forcing):
    stage = forcing(tiny_world)
    batch, rollout = scored(stage)
    losses = list(stage.scores.fake_losses(rollout, batch["fake_levels"], batch["fake_noise"]))
    assert len(losses) == len(rollout.clips)
    for clip, level, loss in zip(rollout.clips, batch["fake_levels"], losses, strict=True):
        x, noise = rollout.batch["latents"][:, clip], batch["fake_noise"][:, clip]
        levels = level[:, None].expand(x.shape[:2])
        predicted = stage.scores.fake.velocities(
            stage.scores.fake.features_of(rollout.window(clip), Noisy(add_noise(x, noise, level), levels))
        )
        torch.testing.assert_close(loss, (predicted - (noise - x)).square().mean() / len(losses))
    sum(losses).backward()
    trained = {name for name, parameter in stage.scores.named_parameters() if parameter.grad is not None}
    assert trained == {n for n, p in stage.scores.named_parameters() if p.requires_grad}
    assert all(name.startswith(("fake.world.transformer.", "fake.world.compressor.")) for name in trained)
    assert any(name.startswith("fake.world.compressor.") for name in trained)
    real = {parameter.data_ptr() for parameter in stage.scores.real.parameters()}
    assert not real & {parameter.data_ptr() for parameter in stage.scores.fake.parameters()}
    assert not real & {parameter.data_ptr() for parameter in stage.world.parameters()}


def test_a_teacher_with_another_memory_or_codec_is_refused(tiny_world, chunked_world):
    check_teacher(copy.deepcopy(tiny_world), tiny_world)
    other = tiny_world.with_memory(replace(tiny_world.config.memory, budget_slots=3))
    with pytest.raises(ValueError, match=r"the teacher's memory is MemoryConfig.*; give a teacher of the same"):
        check_teacher(other, tiny_world)
    with pytest.raises(ValueError, match="the teacher's chunk_latents is 4 and the student's 1"):
        check_teacher(chunked_world, tiny_world)
    other = copy.deepcopy(tiny_world)
    next(other.codec.parameters()).data.add_(1e-3)
    with pytest.raises(ValueError, match="the teacher has another codec than the student; give a teacher trained on"):
        check_teacher(other, tiny_world)
