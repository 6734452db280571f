"""A large world of two experts through the curriculum: one at a time over its own noise levels, both in rollouts."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from world_model.checkpoint import load_world
from world_model.config import FewStepConfig
from world_model.controls import StructuredCaption
from world_model.flow import training_levels
from world_model.large.config import BOUNDARY
from world_model.large.folder import read_large_world
from world_model.large.pair import open_pair
from world_model.large.trainable import open_trainable
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.few_step import FewStepStage
from world_model.training.frame_query import FrameQueryStage
from world_model.training.history import HistoryStage
from world_model.training.loop import step_generator
from world_model.training.losses import read_losses
from world_model.training.navigation import NavigationStage
from world_model.training.stable_forcing import StableForcingStage
from world_model.training.stages import LARGE_STAGES

EXPERTS = ("high", "low")
BLOCKS = (28, 28, 36, 36)
RANGES = {"high": (BOUNDARY, 1.0), "low": (0.0, BOUNDARY)}
NEXT = {"high": "low", "low": "high"}
SLACK = 1e-6  # of float32


@pytest.fixture
def start(toy, base_folder):
    """The folder of a world of two experts that starts from public video weights."""
    return base_folder(toy, blocks=BLOCKS)


def asked(stage):
    """The noise levels above 0 that the network of a stage, or its teacher's, is told from now on."""
    seen = []

    def note(network):
        steer = network.condition
        network.condition = lambda group, levels, *rest: seen.append(levels[levels > 0]) or steer(group, levels, *rest)

    note(stage.world.transformer)
    if hasattr(stage, "teacher"):
        note(stage.teacher.world.transformer)
    return seen


def live(folder):
    """The latents of the second chunk of a rollout in a folder's world."""
    stream = load_world(folder, dtype="float32").stream(1, sampling_steps=None)
    stream.reset([0], [np.zeros((1, 64, 64, 3), np.uint8)], [StructuredCaption("stripes")], [0])
    n = stream.latents_per_chunk
    frames = [stream.step(np.zeros((1, n, 6), np.float32)) for _ in range(2)]
    assert frames[1].shape == (1, 4 * n, 64, 64, 3)
    return stream.latents


def weights(folder, expert):
    return load_file(folder / f"{expert}-00001.safetensors")


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(value, right[name]) for name, value in left.items())


@pytest.mark.parametrize("shift", [1.5, 5.0, 7.0])
@pytest.mark.parametrize("expert", EXPERTS)
def test_levels_of_a_part_of_the_law_stay_in_it_and_are_spread_as_there(expert, shift):
    low, high = RANGES[expert]
    levels = training_levels((200_000,), shift, torch.Generator().manual_seed(0), (low, high))
    assert levels.dtype == torch.float32 and levels.min() >= low - SLACK and levels.max() <= high + SLACK
    every = training_levels((400_000,), shift, torch.Generator().manual_seed(1))
    own = every[(every >= low) & (every <= high)]
    shares = torch.linspace(0.05, 0.95, 7)
    torch.testing.assert_close(levels.quantile(shares), own.quantile(shares), atol=0.01, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("kind", [NavigationStage, FrameQueryStage, HistoryStage, AutoregressiveStage, FewStepStage])
@pytest.mark.parametrize("expert", EXPERTS)
def test_an_expert_is_asked_at_its_own_noise_levels_alone(start, stage_of, hasty, expert, kind):
    world, settings = open_trainable(start, expert), hasty
    if kind is FewStepStage:
        world, settings = world.with_blocks(BLOCKS), FewStepConfig(**vars(hasty) | {"midpoint": True, "guidance": 2.0})
    stage = stage_of(kind, world, settings)
    seen = asked(stage)
    for step in range(25):
        loss, _ = stage(stage.batch(step_generator(0, step), step))
        assert loss > 0
    levels = torch.cat(seen)
    low, high = RANGES[expert]
    assert len(levels) >= 100 and levels.unique().numel() > 3
    assert levels.min() >= low - SLACK and levels.max() <= high + SLACK


@torch.no_grad()
@pytest.mark.parametrize("expert", EXPERTS)
def test_the_first_step_is_the_base_expert(start, stage_of, base_velocity, expert):
    stage = stage_of(HistoryStage, open_trainable(start, expert))
    batches = [stage.batch(step_generator(3, step), step) for step in range(12)]
    first = next(batch for batch in batches if int(batch["first_target"]) == 0 and batch["codes"].shape[1] == 1)
    levels = stage.noisy(first).levels
    expected = base_velocity(stage.world, first, levels)
    torch.testing.assert_close(stage.predict(first), expected, rtol=1e-4, atol=1e-4)
    other = base_velocity(open_pair(start).experts[NEXT[expert]], first | {"codes": 0 * first["codes"]}, levels)
    assert not torch.allclose(other, expected, atol=0.1)


@pytest.mark.parametrize("stage", ["navigation", "frame_query", "history", "autoregressive"])
def test_a_stage_trains_one_expert_goes_on_and_carries_the_other_along(start, train, tmp_path, capsys, stage):
    words = ("--stage", stage, "--start", str(start), "--expert", "low")
    train(*words, "--steps", "2")
    train(*words, "--steps", "10")
    assert "run/world, its high-noise expert as it was" in capsys.readouterr().out
    run = tmp_path / "run"
    assert all(np.isfinite(entry["loss"]) for entry in read_losses(run))
    before, after = weights(start, "low"), load_file(run / "step-00000010" / "model.safetensors")
    assert before.keys() == after.keys()
    name = "transformer.blocks.1.action.out.weight"
    assert not torch.equal(before[name], after[name])
    assert not same(before, weights(run / "world", "low"))
    for folder in (run / "start", run / "world"):
        assert same(weights(start, "high"), weights(folder, "high"))
    assert read_large_world(run / "world").variant == LARGE_STAGES[stage]
    assert live(run / "world").isfinite().all()


def test_a_run_goes_on_with_the_expert_that_it_began_with(start, train, tmp_path):
    words = ("--stage", "navigation", "--start", str(start))
    train(*words, "--expert", "high", "--steps", "1")
    with pytest.raises(ValueError, match="is a run with expert 'high', not 'low'"):
        train(*words, "--expert", "low", "--steps", "2")
    again = weights(tmp_path / "run" / "world", "high")
    train(*words, "--expert", "high", "--steps", "3")
    assert not same(again, weights(tmp_path / "run" / "world", "high"))


def test_what_is_carried_along_does_not_change_when_its_source_is_written_anew(start, train, tmp_path):
    train("--stage", "navigation", "--start", str(start), "--expert", "high", "--steps", "1")
    run, onward = tmp_path / "run", tmp_path / "onward"
    before = weights(run / "world", "high")
    words = ("--stage", "navigation", "--start", str(run), "--expert", "low", "--out", str(onward))
    train(*words, "--steps", "1")
    assert os.stat(onward / "world" / "high-00001.safetensors").st_nlink > 1  # one copy on disk
    train("--stage", "navigation", "--start", str(start), "--expert", "high", "--steps", "3")
    assert not same(before, weights(run / "world", "high"))
    for folder in (onward / "start", onward / "world"):
        assert same(before, weights(folder, "high"))


def test_an_expert_is_distilled_with_its_own_heads_while_the_other_keeps_copies_of_its_layer(start, train, tmp_path):
    train("--stage", "few_step", "--start", str(start), "--expert", "high", "--steps", "2")
    run, onward = tmp_path / "run", tmp_path / "onward"
    heads = {name: load_file(run / "world" / f"heads-{name}.safetensors") for name in EXPERTS}
    bank, plain = (
        {name: found[key] for name, found in heads.items()}
        for key in ("parallel_decoder.weight", "transformer.head.weight")
    )
    assert [len(bank[name]) for name in EXPERTS] == [56, 72]
    assert len(bank["high"].unique(dim=0)) > 1
    assert torch.equal(bank["low"], plain["low"].expand_as(bank["low"]))
    before = weights(start, "low")
    after = weights(run / "world", "low")
    last = {"transformer.head.weight", "transformer.head.bias"}
    assert all(torch.equal(value, after[name]) for name, value in before.items() if name not in last)
    assert live(run / "world").isfinite().all()
    words = ("--stage", "few_step", "--start", str(run), "--expert", "low", "--out", str(onward), "--steps", "2")
    train(*words)
    high = load_file(onward / "world" / "heads-high.safetensors")
    assert same(high, heads["high"]) and same(weights(run / "world", "high"), weights(onward / "world", "high"))
    low = load_file(onward / "world" / "heads-low.safetensors")["parallel_decoder.weight"]
    assert len(low.unique(dim=0)) > 1
    assert live(onward / "world").isfinite().all()


def test_a_distilled_pair_gets_plain_heads_again_for_other_stages(start, train, tmp_path):
    train("--stage", "few_step", "--start", str(start), "--expert", "high", "--steps", "1")
    words = ("--stage", "autoregressive", "--start", str(tmp_path / "run"), "--out", str(tmp_path / "back"))
    train(*words, "--expert", "low", "--steps", "1")
    plain = load_file(tmp_path / "run" / "world" / "heads-high.safetensors")["transformer.head.weight"]
    assert torch.equal(weights(tmp_path / "back" / "world", "high")["transformer.head.weight"], plain)
    assert live(tmp_path / "back" / "world").isfinite().all()


def test_the_whole_curriculum_trains_each_expert_and_then_both(start, train, tmp_path):
    stages = ("navigation", "frame_query", "history", "autoregressive", "few_step", "stable_forcing")
    words = ("--curriculum", "--start", str(start), "--steps", *(f"{stage}=1" for stage in stages[:-1]))
    train(*words, "stable_forcing=2")
    run = tmp_path / "run" / "stable_forcing"
    assert all(np.isfinite(entry["loss"]) for entry in read_losses(run))
    for expert in EXPERTS:
        assert (tmp_path / "run" / f"few_step-{expert}" / "world").is_dir()
        before, after = (load_file(path / f"heads-{expert}.safetensors") for path in (run / "start", run / "world"))
        name = "parallel_decoder.weight"
        assert not torch.equal(before[name].bfloat16(), after[name])
    assert live(run / "world").isfinite().all() and "few_step-low" in (tmp_path / "run" / "report.md").read_text()
    newest = load_file(run / "step-00000002" / "model.safetensors")
    train(*words, "stable_forcing=3")
    assert not same(newest, load_file(run / "step-00000003" / "model.safetensors"))


@pytest.fixture
def forced(start, stage_of):
    """Stable Forcing of a distilled pair."""
    world = open_pair(start).as_variant("fast").with_blocks(BLOCKS).requires_grad_(True)
    with torch.no_grad():
        for expert in world.experts.values():
            for heads in expert.parallel_decoder.parameters():
                heads += 0.1 * torch.randn(heads.shape, generator=torch.Generator().manual_seed(2))
    settings = world.config.curriculum.stable_forcing

    def kind(world, latents, settings):
        teacher = open_pair(start)
        teacher.know(world.text)
        return StableForcingStage(world, latents, settings, teacher)

    return stage_of(kind, world, settings)


def learned(networks):
    return {
        name
        for name, network in networks.items()
        if any(parameter.grad is not None for parameter in network.transformer.parameters())
    }


def test_scores_are_asked_at_levels_of_one_expert_which_learns(forced):
    shares = []
    for step in range(100):
        batch = forced.batch(step_generator(0, step), step)
        levels = torch.cat([batch["levels"].flatten(), batch["fake_levels"].flatten()])
        high = levels.mean() > BOUNDARY
        low_end, high_end = RANGES["high" if high else "low"]
        assert levels.min() >= low_end - SLACK and levels.max() <= high_end + SLACK
        shares.append(float(high))
        if step in (0, 1, 2):
            forced.zero_grad()
            forced(batch)[0].backward()
            fake = {name: stage.world for name, stage in forced.scores.fake.experts.items()}
            assert learned(fake) == {"high" if high else "low"}
    every = training_levels((100_000,), forced.world.config.flow.shift, torch.Generator().manual_seed(0))
    assert np.mean(shares) == pytest.approx(float((every > BOUNDARY).float().mean()), abs=0.15)


@pytest.mark.parametrize(("leave", "expert"), [(0, "high"), (1, "low")])
def test_a_replayed_evaluation_teaches_the_expert_that_made_it(forced, leave, expert):
    batch = forced.batch(step_generator(0, 1), 1)
    student = forced.student
    rollout = student.roll_out(batch, 4, [leave, leave], 2)
    forced.zero_grad()
    for where, clean in student.replay(batch, rollout):
        if leave == 1:
            torch.testing.assert_close(clean.detach(), rollout.latents[:, where], rtol=1e-4, atol=1e-4)
        clean.square().mean().backward()
    assert learned(forced.world.experts) == {expert}
    heads = {name: world.parallel_decoder.weight.grad for name, world in forced.world.experts.items()}
    assert heads[expert].abs().sum() > 0 and heads[NEXT[expert]] is None


@torch.no_grad()
def test_one_evaluation_of_both_experts_is_refused(forced):
    batch = forced.batch(step_generator(0, 1), 1)
    with pytest.raises(ValueError, match="the intervals 0 to 128 would need both experts"):
        forced.student.roll_out(batch, 4, [0, 0], 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stage", "navigation"), "the stage navigation trains one expert .* at a time; give --expert high or low"),
        (("--stage", "few_step_data_free", "--expert", "high"), "walks down from pure noise .* use few_step"),
        (("--stage", "stable_forcing", "--expert", "low", "--teacher", "x"), "trains both experts at once; leave out"),
        (("--curriculum", "--expert", "low"), "a curriculum trains one expert after the other; leave out"),
        (
            ("--stage", "few_step", "--expert", "low", "--set", "few_step.blocks=[64,64]"),
            r"the blocks \[64, 64\] are not those that two experts share",
        ),
    ],
)
def test_an_expert_is_named_where_there_is_a_choice(start, train, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        train("--start", str(start), *words, "--steps", *(["navigation=1"] if "--curriculum" in words else ["1"]))
    assert not (tmp_path / "run").exists()


def test_other_worlds_have_no_expert_to_choose(single, base_folder, train, tmp_path):
    with pytest.raises(ValueError, match="--expert low is for large worlds of two experts; leave it out"):
        train("--stage", "navigation", "--start", str(base_folder(single)), "--expert", "low", "--steps", "1")
    with pytest.raises(ValueError, match="has no expert 'low'; choose only"):
        open_trainable(tmp_path / "start", "low")
