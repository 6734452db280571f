"""The loop: a stopped run that goes on is the run that was never stopped."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from world_model.config import TINY, FewStepConfig, StableForcingConfig, to_json
from world_model.training import checkpointing
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.codec import ENCODER, CodecStage, DecoderStage
from world_model.training.few_step import DataFreeFewStepStage, FewStepStage
from world_model.training.frame_query import FrameQueryStage
from world_model.training.history import HistoryStage
from world_model.training.latents import LatentStore
from world_model.training.loop import Budget, step_generator, train
from world_model.training.losses import read_losses
from world_model.training.navigation import NavigationStage
from world_model.training.optimizer import schedule
from world_model.training.stable_forcing import StableForcingStage
from world_model.world import World

SETTINGS = replace(TINY.curriculum.autoregressive, batch=2, frames=6, warmup_steps=2)
FEW_STEP = FewStepConfig(batch=2, frames=6, warmup_steps=2, blocks=(2, 1))
FORCING = StableForcingConfig(batch=2, start=3, frames=2, clips=2, growth_steps=3, warmup_steps=2, watch_steps=3)


def stage_of(kind, store, settings=SETTINGS):
    world = World.random(TINY)
    if kind is CodecStage:
        return CodecStage(world.codec, store, replace(settings, frames=2))
    latents = LatentStore(store, world.codec, TINY)
    if kind is StableForcingStage:
        return kind(world.with_blocks((2, 1)), latents, settings, world)
    return kind(world.with_blocks((2, 1)) if issubclass(kind, FewStepStage) else world, latents, settings)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (CodecStage, SETTINGS),
        (NavigationStage, SETTINGS),
        (FrameQueryStage, SETTINGS),
        (HistoryStage, SETTINGS),
        (AutoregressiveStage, SETTINGS),
        (FewStepStage, FEW_STEP),
        (DataFreeFewStepStage, FEW_STEP),
        (StableForcingStage, FORCING),
    ],
)
def test_a_run_in_two_sessions_equals_a_run_in_one(kind, settings, stripes, tmp_path):
    config = replace(settings, decay_fraction=0.0)  # the schedule may not look at the budget
    for run, budgets in (("one", [4]), ("two", [2, 4])):
        for steps in budgets:
            stage = stage_of(kind, stripes, config)
            train(stage, tmp_path / run, config, Budget(steps=steps), to_json(TINY), "cpu")
    for file in ("model", "averaged"):
        one, two = (load_file(tmp_path / run / "step-00000004" / f"{file}.safetensors") for run in ("one", "two"))
        assert one.keys() == two.keys()
        bits = ([tensor.flatten().view(torch.uint8) for tensor in (one[name], two[name])] for name in one)
        assert all(torch.equal(*pair) for pair in bits), file  # of numbers that are none, too


def test_sigterm_writes_a_checkpoint_and_half_a_checkpoint_is_not_one(stripes, tmp_path):
    stage = stage_of(NavigationStage, stripes)
    draw = stage.batch

    def interrupted(generator, step):
        if stage.drawn == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        stage.drawn += 1
        return draw(generator, step)

    stage.drawn, stage.batch = 1, interrupted
    progress = train(stage, tmp_path, SETTINGS, Budget(steps=50), to_json(TINY), "cpu")
    assert progress.step == 3
    (tmp_path / "step-00000009.tmp").mkdir()
    assert [path.name for path in checkpointing.checkpoints(tmp_path)] == ["step-00000003"]


def test_only_the_newest_two_checkpoints_are_kept(stripes, tmp_path):
    for steps in (1, 2, 3):
        train(stage_of(CodecStage, stripes), tmp_path, SETTINGS, Budget(steps=steps), to_json(TINY), "cpu")
    assert [path.name for path in checkpointing.checkpoints(tmp_path)] == ["step-00000002", "step-00000003"]


def test_a_budget_of_minutes_ends_and_is_remembered(stripes, tmp_path):
    budget = Budget(minutes=0.02)
    progress = train(stage_of(CodecStage, stripes), tmp_path, SETTINGS, budget, to_json(TINY), "cpu")
    again = train(stage_of(CodecStage, stripes), tmp_path, SETTINGS, budget, to_json(TINY), "cpu")
    assert progress.step == again.step > 0
    with pytest.raises(ValueError, match="budget"):
        Budget()


def test_what_only_some_steps_tell_is_logged_with_the_next_entry(stripes, tmp_path):
    stage = stage_of(NavigationStage, stripes)
    forward, draw = stage.forward, stage.batch
    stage.batch = lambda generator, step: draw(generator, step) | {"step": torch.tensor(step)}

    def telling(batch):
        step = batch.pop("step")
        return forward(batch)[0], {"even": step} if step % 2 == 0 else {"odd": step}

    stage.forward = telling
    train(stage, tmp_path, SETTINGS, Budget(steps=13), to_json(TINY), "cpu")
    told = [(entry["step"], entry["even"], entry["odd"]) for entry in read_losses(tmp_path)]
    assert told == [(10, 8, 9), (13, 12, 11)]


def test_the_schedule_warms_up_and_decays():
    config = replace(SETTINGS, warmup_steps=10, decay_fraction=0.5)
    assert schedule(0, 0.0, config) == pytest.approx(0.1)
    assert schedule(50, 0.5, config) == pytest.approx(1.0)
    assert schedule(50, 0.75, config) == pytest.approx(0.5)
    assert schedule(50, 1.0, config) == 0.0


def test_the_codec_learns_and_its_latents_become_normal(stripes, tmp_path):
    stage = stage_of(CodecStage, stripes)
    stage.eval()
    before = float(stage(stage.batch(step_generator(1, 0), 0))[0].detach())
    stage.train()
    train(stage, tmp_path, replace(SETTINGS, learning_rate=3e-3), Budget(steps=150), to_json(TINY), "cpu")
    stage.eval()
    assert float(stage(stage.batch(step_generator(1, 0), 0))[0].detach()) < 0.8 * before
    frames = stage.batch(step_generator(2, 0), 0)["frames"].movedim(-1, 2).float() / 127.5 - 1
    latents = stage.codec.encode(frames)
    assert abs(float(latents.mean())) < 1.0 and 0.2 < float(latents.std()) < 3.0


def test_the_decoder_stage_leaves_the_latents_alone(stripes, tmp_path):
    world = World.random(TINY)
    before = {name: value.clone() for name, value in world.codec.state_dict().items()}
    stage = DecoderStage(world.codec, stripes, replace(SETTINGS, frames=2))
    train(stage.train(), tmp_path, SETTINGS, Budget(steps=3), to_json(TINY), "cpu")
    changed = {name for name, value in world.codec.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and not any(name.startswith((*ENCODER, "latent_")) for name in changed)


def test_a_window_shifted_by_one_action_row_raises_the_loss(stripes, tmp_path):
    """Rows must lead to their frame: after a little training the loss knows the difference."""
    codec_stage = stage_of(CodecStage, stripes)
    fast = replace(SETTINGS, batch=8, learning_rate=3e-3, matrix_learning_rate=2e-2, warmup_steps=10)
    train(codec_stage.train(), tmp_path / "codec", fast, Budget(steps=200), to_json(TINY), "cpu")
    world = World.random(TINY)
    world.codec.load_state_dict(codec_stage.codec.state_dict())
    stage = AutoregressiveStage(world, LatentStore(stripes, world.codec, TINY), fast)
    train(stage.train(), tmp_path / "network", fast, Budget(steps=300), to_json(TINY), "cpu")
    stage.eval()
    right = shifted = 0.0
    with torch.no_grad():
        for step in range(12):
            batch = stage.batch(step_generator(99, step), step)
            right += float(stage(batch)[0])
            batch["actions"] = batch["actions"].roll(1, dims=1)
            shifted += float(stage(batch)[0])
    assert shifted > 1.03 * right
