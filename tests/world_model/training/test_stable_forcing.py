"""Distribution matching: which way it goes, which gradients it sums, what it keeps alive, and who is trained."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from world_model.chunk import ChunkGenerator
from world_model.sampling import evaluations_of
from world_model.training.clip_scores import ScoredRollout
from world_model.training.loop import step_generator
from world_model.training.objective import encode_captions
from world_model.training.self_rollout import Moment, Rollout
from world_model.training.stable_forcing import (
    FullContextForcingStage,
    StableForcingStage,
    TruncatedForcingStage,
    matching_loss,
)

WORLDS = pytest.mark.parametrize("name", ["tiny_world", "chunked_world"])


def drawn(stage, step=0):
    return stage.batch(step_generator(0, step), step)


def rolled(stage, batch):
    """A rollout and how the scores read it."""
    evaluations = int(batch["evaluations"])
    rollout = stage.student.roll_out(batch, stage.config.start, batch["exits"].tolist(), evaluations)
    return rollout, ScoredRollout.of(batch, rollout.latents, stage.student.coarse(rollout), stage._cut(rollout))


def gradients(module):
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def apart(stage):
    """The stage with a fake score that is not the real one any more."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in stage.scores.fake.world.transformer.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return stage


class GaussianStudent(nn.Module):
    """Latents of one mean and one scale, in place of a network and its rollouts."""

    def __init__(self, mean: float, scale: float) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(mean))
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))

    def draw(self, shape, evaluations, generator):
        return {"noise": torch.randn(shape, generator=generator)}

    def clean(self, noise):
        return self.mean + self.log_scale.exp() * noise

    def replay(self, batch, rollout):
        for number in range(len(rollout.moments)):
            where = slice(rollout.start + number, rollout.start + number + 1)
            yield where, self.clean(batch["noise"][:, where])


def gaussian_velocities(law):
    """The exact velocity of Gaussian data whose mean and scale ``law()`` gives."""

    def velocities(window, noisy, guidance):
        mean, scale = law()
        sigma = noisy.levels[..., None, None, None]
        spread = (1 - sigma) ** 2 * scale**2 + sigma**2
        away = noisy.latents - (1 - sigma) * mean
        return sigma / spread * away - (mean + (1 - sigma) * scale**2 / spread * away)

    return velocities


def matched(stage, steps, sign=1):
    """The mean and scale of a Gaussian student after so many steps towards a Gaussian teacher of (1, 0.5)."""
    toy = stage.student = GaussianStudent(0.0, 1.0)
    stage.scores.real.guided_velocities = gaussian_velocities(lambda: (1.0, 0.5))
    stage.scores.fake.guided_velocities = gaussian_velocities(lambda: (toy.mean.detach(), toy.log_scale.detach().exp()))
    direction = stage.scores.direction
    stage.scores.direction = lambda *given: sign * direction(*given)
    optimizer = torch.optim.SGD(toy.parameters(), lr=0.2)
    start = stage.config.start
    for step in range(steps):
        batch = drawn(stage, step)
        with torch.no_grad():
            latents = torch.cat([batch["latents"][:, :start], toy.clean(batch["noise"][:, start:])], 1)
        moments = [Moment(latents, 0)] * (latents.shape[1] - start)
        rollout = Rollout(latents, latents, moments, start)
        stage.update_student(batch, rollout, ScoredRollout.of(batch, latents, batch["coarse"], stage._cut(rollout)))
        optimizer.step()
        optimizer.zero_grad()
    return float(toy.mean.detach()), float(toy.log_scale.detach().exp())


@pytest.mark.parametrize("normalised", [True, False])
def test_matching_leads_a_student_to_its_teacher_and_the_opposite_direction_away(tiny_world, forcing, normalised):
    mean, scale = matched(forcing(tiny_world, normalised=normalised), 120)
    assert abs(mean - 1) < 0.1 and abs(scale - 0.5) < 0.1
    mean, scale = matched(forcing(tiny_world, normalised=normalised), 8, sign=-1)
    assert mean < -0.2 and scale > 1.05


def test_the_gradient_of_the_matching_loss_is_minus_the_direction():
    generator = torch.Generator().manual_seed(0)
    clean, direction = torch.randn(2, 3, 5, generator=generator)
    clean.requires_grad_(True)
    matching_loss(clean, direction).backward()
    torch.testing.assert_close(clean.grad, -direction / direction.numel())


def predicted_anew(stage, batch, rollout, number):
    """One chunk's clean prediction at its moment, after a memory that is built for it from the beginning."""
    n, r, start = stage.student.n, stage.student.r, rollout.start
    chunks = ChunkGenerator(stage.world)
    first = start + number * n
    with torch.no_grad():
        past = chunks.empty(len(batch["latents"]))
        past.caption, active = encode_captions(stage.world, batch["codes"], batch["active"])
        for begin in (0, *range(1, first, n)):
            end = min(first, begin + (n if begin else 1))
            past.active = active[:, begin]
            frames = rollout.frames[:, begin * r : end * r]
            chunks.commit(past, rollout.latents[:, begin:end], frames, batch["actions"][:, begin:end])
    past.active = active[:, first]
    moment = rollout.moments[number]
    evaluation = evaluations_of(stage.world, rollout.evaluations)[moment.index]
    actions = batch["actions"][:, first : first + n]
    displacement, endpoint = chunks.predict(chunks.view(past, n), moment.x, actions, evaluation)
    return moment.x + displacement - evaluation.last * endpoint


@WORLDS
def test_replayed_gradients_are_those_of_one_graph_over_all_chunks(name, request, forcing):
    stage = apart(forcing(request.getfixturevalue(name)))
    batch = drawn(stage)
    rollout, scored = rolled(stage, batch)
    stage.update_student(batch, rollout, scored)
    replayed = gradients(stage.world)
    stage.zero_grad()

    levelled = zip(scored.clips, batch["levels"], strict=True)
    wanted = torch.cat([stage.scores.direction(scored, *both, batch["level_noise"]) for both in levelled], 1)
    total, n, count = 0.0, stage.student.n, len(rollout.moments)
    for number in range(count):
        clean = predicted_anew(stage, batch, rollout, number)
        target = (clean + wanted[:, number * n : (number + 1) * n]).detach()
        total = total + 0.5 * (clean - target).square().mean() / count
    total.backward()
    joint = gradients(stage.world)
    assert replayed.keys() == joint.keys() and "parallel_decoder.weight" in joint
    largest = max(float(grad.abs().max()) for grad in joint.values())
    assert largest > 1e-3
    for key, grad in joint.items():
        torch.testing.assert_close(replayed[key], grad, atol=1e-6 * largest, rtol=1e-6, msg=key)


class Ledger:
    """Bytes that autograd keeps for backward passes at any one time: now, and at most."""

    def __init__(self):
        self.live = self.peak = 0

    def keep(self, tensor):
        ledger, size = self, tensor.numel() * tensor.element_size()

        class Kept:
            def __init__(self):
                self.tensor = tensor
                ledger.live += size
                ledger.peak = max(ledger.peak, ledger.live)

            def __del__(self):
                ledger.live -= size

        return Kept()

    def peak_of(self, work):
        self.live = self.peak = 0
        with torch.autograd.graph.saved_tensors_hooks(self.keep, lambda kept: kept.tensor):
            work()
        return self.peak


def test_what_is_kept_for_backward_does_not_grow_with_the_rollout(tiny_world, forcing):
    def peaks(chunks):
        stage = apart(forcing(tiny_world, clips=chunks // 2))
        batch = drawn(stage)
        batch["exits"] = torch.arange(chunks) % 4
        rollout, scored = rolled(stage, batch)

        def joint():
            cleans = [clean for _, clean in stage.student.replay(batch, rollout)]
            sum(clean.square().mean() for clean in cleans).backward()

        return Ledger().peak_of(lambda: stage.update_student(batch, rollout, scored)), Ledger().peak_of(joint)

    (short, together_short), (long, together_long) = peaks(4), peaks(40)
    assert 0 < short == long
    assert together_short > 3 * short and together_long > 9 * together_short  # one graph would grow


@pytest.mark.parametrize("kind", [StableForcingStage, TruncatedForcingStage, FullContextForcingStage])
def test_a_step_trains_the_fake_score_and_only_every_few_the_student(tiny_world, forcing, kind):
    stage = apart(forcing(tiny_world, kind))
    batch = drawn(stage)
    found = {}
    for for_student in (False, True):
        stage.zero_grad()
        loss, metrics = stage(batch | {"for_student": torch.tensor(for_student), "look": torch.tensor(False)})
        assert ("direction" in metrics) == for_student and metrics["fake"] >= loss.detach()
        loss.backward()
        found[for_student] = gradients(stage)
    student = {name for name in found[True] if name.startswith("world.")}
    assert found[True].keys() - found[False].keys() == student
    assert all(name.startswith("scores.fake.world.") for name in found[False])
    assert all(torch.equal(found[True][name], grad) for name, grad in found[False].items())
    parts = {name.split(".")[1] for name in student}
    assert parts == {"transformer", "compressor", "parallel_decoder"} or parts == {"transformer", "parallel_decoder"}
    heads = {"world.transformer.head.weight", "world.transformer.head.bias"}  # interval heads took their place
    frozen = ("world.codec.", "world.text.", "scores.real.", "scores.fake.world.codec.", "scores.fake.world.text.")
    for name, parameter in stage.named_parameters():
        if name.startswith(frozen):
            assert not parameter.requires_grad
        elif name.startswith("world.transformer.") and name not in heads:
            assert name in student, name


def test_the_clips_of_the_fake_score_sum_to_one_loss(tiny_world, forcing):
    stage = apart(forcing(tiny_world))
    batch = drawn(stage) | {"for_student": torch.tensor(False), "look": torch.tensor(False)}
    loss, metrics = stage(batch)
    loss.backward()
    one_by_one = gradients(stage.scores)
    stage.zero_grad()
    _, scored = rolled(stage, batch)
    together = sum(stage.scores.fake_losses(scored, batch["fake_levels"], batch["fake_noise"]))
    together.backward()
    torch.testing.assert_close(metrics["fake"], together.detach())
    for name, grad in gradients(stage.scores).items():
        torch.testing.assert_close(one_by_one[name], grad, atol=1e-6, rtol=1e-4, msg=name)


def test_a_truncated_stage_rolls_out_truncated(tiny_world, forcing, monkeypatch):
    for kind, truncated in ((StableForcingStage, False), (TruncatedForcingStage, True)):
        stage = forcing(tiny_world, kind)
        asked, roll_out = [], stage.student.roll_out
        stage.student.roll_out = lambda b, s, e, k, t, asked=asked, roll_out=roll_out: (
            asked.append(t) or roll_out(b, s, e, k, t)
        )
        stage(drawn(stage) | {"look": torch.tensor(False), "for_student": torch.tensor(False)})
        assert asked == [truncated]


def test_the_student_has_every_second_step_and_rollouts_grow(tiny_world, forcing):
    stage = forcing(tiny_world, clips=4, growth_steps=9, ratio=3, watch_steps=5)
    batches = [drawn(stage, step) for step in range(12)]
    assert [bool(b["for_student"]) for b in batches] == [step % 3 == 0 for step in range(12)]
    assert [bool(b["look"]) for b in batches] == [step % 5 == 0 for step in range(12)]
    clips = [len(b["levels"]) for b in batches]
    assert clips == [1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    for count, batch in zip(clips, batches, strict=True):
        length = stage.config.start + count * stage.config.frames
        assert batch["latents"].shape[1] == batch["noise"].shape[1] == length
        assert len(batch["exits"]) == count * stage.config.frames and len(batch["fake_levels"]) == count
    assert set(torch.cat([b["exits"] for b in batches]).tolist()) == {0, 1, 2, 3}
    levels = torch.cat([b["levels"].flatten() for b in batches])
    assert levels.min() > 0 and levels.max() < 1


def test_rollouts_are_as_long_as_the_recordings_allow(tiny_world, forcing, random_store):
    stage = forcing(tiny_world, clips=4)
    stage.store = random_store(tiny_world.config, 3 + 2 * 2 + 1, change=4)
    assert drawn(stage)["latents"].shape[1] == 3 + 2 * 2
    stage.store = random_store(tiny_world.config, 4, change=2)
    with pytest.raises(ValueError, match="the longest recording has 4 latents, and a rollout of one clip takes 5"):
        drawn(stage)


@pytest.mark.parametrize("settings", [{"start": 8}, {"frames": 6}])
def test_rollouts_and_clips_are_whole_chunks(chunked_world, forcing, settings):
    with pytest.raises(ValueError, match="do not split into chunks of 4; choose 1, 5, 9 or so on for start"):
        forcing(chunked_world, **settings)


def test_a_student_without_heads_begins_as_the_euler_solver(tiny_world, distil):
    settings = replace(tiny_world.config.curriculum.few_step, blocks=(2, 3))
    world = tiny_world.with_blocks(())
    world.config = replace(world.config, curriculum=replace(world.config.curriculum, few_step=settings))
    fresh = StableForcingStage.starts_from(world)
    assert fresh.config.flow.blocks == (2, 3)
    assert torch.equal(fresh.parallel_decoder.weight[4], world.transformer.head.weight)
    distilled = distil(tiny_world)
    assert StableForcingStage.starts_from(distilled) is distilled


def test_a_checkpoint_has_the_student_the_fake_score_and_the_watch(tiny_world, forcing):
    names = forcing(tiny_world).weights().keys()
    assert {"parallel_decoder.weight", "fake.transformer.head.weight", "watch.best", "watch.outside"} <= names
    assert not any("codec." in name or name.startswith("scores.") for name in names)


def test_rates_are_of_the_student_and_of_the_fake_score(tiny_world, forcing):
    stage = forcing(tiny_world, learning_rate=2e-5, score_learning_rate=8e-5)
    ((fake, share),) = stage.rates()
    assert share == pytest.approx(4) and not [*stage.hidden_matrices()]
    assert {id(p) for p in fake} == {id(p) for p in stage.scores.fake.parameters() if p.requires_grad}


def test_a_look_compares_the_rollout_with_the_recording_clip_by_clip(tiny_world, forcing):
    stage = forcing(tiny_world)
    batch = drawn(stage)
    recorded = stage.world.codec.decode(batch["latents"])[0]
    rollout = Rollout(batch["latents"], recorded, [], stage.config.start)
    metrics = stage._look(batch, rollout)
    assert float(metrics["distance"]) < 1e-5 and float(metrics["response"]) > 0
    assert {f"motion_{k}" for k in (1, 2, 3)} | {"motion_true", "contrast_3", "brightness_1"} <= metrics.keys()
    judgement = stage.judge(metrics)
    assert judgement.best and judgement.collapsed is None
    assert stage.judge({}) == type(judgement)()
