"""From public video weights through the curriculum: where it starts, what each stage does, and what comes out."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from world_model.checkpoint import load_world
from world_model.config import FewStepConfig
from world_model.controls import StructuredCaption
from world_model.large.few_step import calls_of, grid_levels
from world_model.large.folder import read_large_world
from world_model.large.trainable import open_trainable
from world_model.training import cli
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.few_step import FewStepStage
from world_model.training.history import HistoryStage
from world_model.training.loop import step_generator
from world_model.training.losses import read_losses
from world_model.training.navigation import NavigationStage
from world_model.training.stages import FORCING_STAGES, LARGE_STAGES


@pytest.fixture
def start(single, base_folder):
    """The folder of a world of one expert that starts from public video weights."""
    return base_folder(single, blocks=(64, 64))


@torch.no_grad()
def test_the_first_step_of_navigation_is_the_base_model(start, stage_of, base_velocity):
    stage = stage_of(NavigationStage, open_trainable(start))
    network, seen = stage.world.transformer, []
    velocity = network.velocity
    network.velocity = lambda *given: seen.append(velocity(*given)) or seen[-1]
    for step in range(6):
        batch = stage.batch(step_generator(0, step), step)
        if batch["codes"].shape[1] > 1:
            continue
        assert batch["levels"][:, 0].eq(0).all()  # this base model is given its picture as a latent without noise
        loss = stage(batch)[0]
        expected = base_velocity(stage.world, batch, batch["levels"])
        torch.testing.assert_close(seen[-1], expected, rtol=1e-5, atol=1e-5)
        asked = (expected - (batch["noise"] - batch["latents"]))[batch["levels"] > 0]
        torch.testing.assert_close(loss, asked.square().mean())
    assert seen


@torch.no_grad()
@pytest.mark.parametrize("kind", [AutoregressiveStage, HistoryStage])
def test_the_first_step_of_a_first_chunk_is_the_base_model_and_memory_its_small_video(
    start, stage_of, base_velocity, kind
):
    stage = stage_of(kind, open_trainable(start))
    batches = [stage.batch(step_generator(3, step), step) for step in range(12)]
    first = next(batch for batch in batches if int(batch["first_target"]) == 0 and batch["codes"].shape[1] == 1)
    expected = base_velocity(stage.world, first, stage.noisy(first).levels)
    torch.testing.assert_close(stage.predict(first), expected, rtol=1e-4, atol=1e-4)
    deep = next(batch for batch in batches if int(batch["first_target"]))
    layout = stage.layout(deep["latents"].shape[1], int(deep["first_target"]))
    _, compressed, _ = stage.memory(deep, layout)
    small = torch.cat([deep["coarse"], torch.zeros_like(deep["coarse_condition"])], dim=2)[:, layout.slot_latents]
    assert torch.equal(compressed, stage.world.transformer.embed_latents(small))


@pytest.mark.parametrize("stage", ["navigation", "frame_query", "history", "autoregressive", "few_step"])
def test_a_stage_trains_stops_goes_on_and_gives_a_world_to_live_in(start, train, tmp_path, stage):
    words = ("--stage", stage, "--start", str(start))
    train(*words, "--steps", "2")
    train(*words, "--steps", "12")
    run = tmp_path / "run"
    losses = [entry["loss"] for entry in read_losses(run)]
    assert len(losses) >= 2 and all(np.isfinite(losses))
    before = load_file(start / "only-00001.safetensors")
    after = load_file(run / "step-00000012" / "model.safetensors")
    learned = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert before.keys() <= after.keys() and "transformer.blocks.1.action.out.weight" in learned
    assert ("compressor.output.weight" in learned) == (stage != "navigation")
    assert read_large_world(run / "world").variant == LARGE_STAGES[stage]
    world = load_world(run / "world", dtype="float32")
    averaged = load_file(run / "step-00000012" / "averaged.safetensors")["transformer.patch_embedding.weight"]
    assert torch.equal(world.experts["only"].transformer.patch_embedding.weight, averaged.bfloat16().float())
    stream = world.stream(1, sampling_steps=2)
    stream.reset([0], [np.zeros((1, 64, 64, 3), np.uint8)], [StructuredCaption("stripes")], [0])
    n = stream.latents_per_chunk
    frames = [stream.step(np.zeros((1, n, 6), np.float32)) for _ in range(2)]
    assert frames[1].shape == (1, 4 * n, 64, 64, 3) and stream.latents.isfinite().all()


def test_one_stage_goes_on_from_another(start, train, tmp_path):
    train("--stage", "navigation", "--start", str(start), "--steps", "1")
    onward = ("--stage", "autoregressive", "--start", str(tmp_path / "run"), "--out", str(tmp_path / "onward"))
    train(*onward, "--steps", "1", "--set", "autoregressive.batch=1")
    assert read_large_world(tmp_path / "onward" / "world").variant == "ar"
    config = json.loads((tmp_path / "onward" / "world" / "config.json").read_text())
    assert config["config"]["world"]["curriculum"]["autoregressive"]["batch"] == 1


@pytest.mark.parametrize("stage", ["codec", "decoder", "full_context", "full_context_forcing"])
def test_stages_that_do_not_train_large_worlds_say_so(start, train, tmp_path, stage):
    teacher = ("--teacher", str(start)) if stage in FORCING_STAGES else ()
    with pytest.raises(ValueError, match=f"the stage {stage} does not train large worlds .* navigation, frame_query"):
        train("--stage", stage, "--start", str(start), "--steps", "1", *teacher)
    assert not (tmp_path / "run").exists()


def test_the_whole_curriculum_runs_from_video_weights_to_a_distilled_world(start, train, tmp_path):
    stages = ("navigation", "frame_query", "history", "autoregressive", "few_step", "stable_forcing")
    train("--curriculum", "--start", str(start), "--steps", *(f"{stage}=2" for stage in stages))
    run = tmp_path / "run" / "stable_forcing"
    assert all(np.isfinite(entry["loss"]) for entry in read_losses(run))
    before, after = (load_file(path / "heads.safetensors") for path in (run / "start", run / "world"))
    name = "parallel_decoder.weight"
    assert not torch.equal(before[name].bfloat16(), after[name])
    world = load_world(run / "world", dtype="float32")
    assert world.large.variant == "fast" and (tmp_path / "run" / "report.md").is_file()
    stream = world.stream(1)
    stream.reset([0], [np.zeros((1, 64, 64, 3), np.uint8)], [StructuredCaption("stripes")], [0])
    assert stream.step(np.zeros((1, 4, 6), np.float32)).shape == (1, 16, 64, 64, 3)


def test_a_teacher_of_another_codec_is_refused(start, train, tmp_path):
    for name in ("one", "other"):
        (tmp_path / name / "vae").mkdir(parents=True)
        for file in start.glob("*.*"):
            (tmp_path / name / file.name).symlink_to(file)
    words = ("--stage", "stable_forcing", "--start", str(tmp_path / "one"), "--teacher", str(tmp_path / "other"))
    with pytest.raises(ValueError, match="the teacher has another codec than the student"):
        train(*words, "--steps", "1")


@torch.no_grad()
def test_a_new_student_is_its_teacher_where_blocks_begin_and_keeps_what_is_given(start, stage_of, hasty):
    world = open_trainable(start).as_variant("fast")
    stage = stage_of(FewStepStage, world.with_blocks((64, 64)), FewStepConfig(**vars(hasty)))
    batches = [stage.batch(step_generator(3, step), step) for step in range(12)]
    for first in (0, 12):
        batch = next(batch for batch in batches if int(batch["first_target"]) == first)
        batch = batch | {"start": torch.full_like(batch["start"], 64), "interval": torch.full_like(batch["start"], 64)}
        assert float(stage(batch)[0]) < 1e-6
        noisy = stage.block_starts(batch, batch["start"][:, first:])
        given = noisy.levels.eq(0)
        assert given[:, 0].all() == (first == 0) and not given[:, 1:].any()
        assert torch.equal(noisy.latents[given], batch["latents"][:, first:][given])
        assert float(stage(batch | {"interval": batch["start"] + 40})[0]) > 1e-4


@torch.no_grad()
def test_a_distilled_world_lives_with_fused_heads_and_learns_on_with_its_own(start, tmp_path):
    world = open_trainable(start).as_variant("fast").with_blocks((28, 28, 36, 36))
    for heads in world.parallel_decoder.parameters():
        heads += 0.1 * torch.randn(heads.shape, generator=torch.Generator().manual_seed(2))
    world.save(tmp_path / "few", torch.float32)
    network = load_world(tmp_path / "few", dtype="float32").experts["only"].transformer
    x, time = torch.randn(1, 16, 16), torch.randn(1, 1, 16)
    features = world.transformer.head_input(x, time)
    decoder, grid, levels = world.parallel_decoder, (4, 4), grid_levels()
    for call in calls_of(world.large.config):
        displacement, endpoint = network.estimates(x, time, grid, call.local)
        start_, last = (torch.tensor([[value]]) for value in (call.start, call.end - 1))
        for mine, patches in (
            (displacement, decoder.displacement(features, start_, last)),
            (endpoint, decoder.velocity(features, last)),
        ):
            torch.testing.assert_close(mine, world.transformer.to_latents(patches, grid), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(decoder.levels, levels)
    again = open_trainable(tmp_path / "few").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in world.state_dict().items())
    (tmp_path / "few" / "heads.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no heads.safetensors, without which a distilled world cannot learn"):
        open_trainable(tmp_path / "few")
    with pytest.raises(ValueError, match=r"the blocks \[8, 8\] cover 16 intervals of noise, and large worlds have 128"):
        open_trainable(start).with_blocks((8, 8))


def test_a_large_world_is_exported_as_its_variant_is(start, train, tmp_path):
    train("--stage", "navigation", "--start", str(start), "--steps", "1")
    for words in (["--fused"], ["--steps", "2"]):
        parser = argparse.ArgumentParser()
        cli.add_export_arguments(parser)
        with pytest.raises(ValueError, match="leave out --fused and --steps"):
            cli.export_main(parser.parse_args([str(tmp_path / "run"), str(tmp_path / "out"), *words]))
