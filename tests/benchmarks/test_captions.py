"""The caption ablation on a tiny world and made-up recordings: what the arms share, and the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import captions, inverse_dynamics, report
from benchmarks.caption_arms import ARMS, MIXED, STRUCTURED, check_captions, mixed, open_rewritten, starting_world
from benchmarks.inverse_dynamics import InverseDynamics
from world_model.checkpoint import load_world, save_world
from world_model.config import TINY
from world_model.controls import ACTION_DIM, NOTHING, PERSPECTIVE, YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.text import ByteEncoder
from world_model.training import checkpointing
from world_model.training.latents import LatentStore
from world_model.world import World

CLIPS, FRAMES, SIZE, BYTES = 4, 20, 32, 128
EVENT_AT = 9
CAPTIONS = [
    StructuredCaption("a hall, dim"),
    StructuredCaption("a hall", event="it rains. Hard"),
    StructuredCaption("a hall", "a knight in green"),
    StructuredCaption("a hall", "a knight in green", "the lights go out"),
]


def made_up_clip(index: int) -> Clip:
    rng = np.random.default_rng(index)
    rows = np.zeros((FRAMES, ACTION_DIM), np.float32)
    rows[1:, YAW], rows[:, PERSPECTIVE] = rng.choice([-8.0, 8.0], FRAMES - 1), 1
    calm = StructuredCaption(f"hall number {index}", "a knight")
    frames = rng.integers(0, 256, (FRAMES, SIZE, SIZE, 3), dtype=np.uint8)
    told = ((0, calm), (EVENT_AT, calm.replace(event="it rains")), (EVENT_AT + 6, calm))
    return Clip(frames, rows, told, meta={"level_seed": index // 2})


@pytest.fixture(scope="module")
def folder(write_store, tmp_path_factory):
    """A folder with a tiny world, whose stage takes small batches, and a store."""
    folder = tmp_path_factory.mktemp("captions")
    stage = replace(TINY.curriculum.autoregressive, batch=2, frames=4, warmup_steps=1)
    curriculum = replace(TINY.curriculum, autoregressive=stage)
    save_world(World.random(replace(TINY, curriculum=curriculum)), folder / "world", torch.float32)
    write_store(folder / "data", [made_up_clip(index) for index in range(CLIPS)])
    return folder


@pytest.fixture
def command(folder, tmp_path, monkeypatch):
    """Runs the command; gives its exit code."""
    monkeypatch.setattr(inverse_dynamics, "load", lambda: InverseDynamics().eval().requires_grad_(False))

    def run(*words: str) -> int:
        data = str(folder / "data")
        common = ["--world", str(folder / "world"), "--data", data, "--test", data, "--runs", str(tmp_path / "runs")]
        common += ["--starts", "4", "--context", "3", "--horizon", "4", "--caption-bytes", str(BYTES)]
        return report.run(captions.main, captions.parse([*common, *words]))

    return run


@pytest.mark.parametrize("caption", CAPTIONS)
def test_a_mixed_caption_is_one_text_that_loses_nothing(caption):
    one = mixed(caption)
    assert (one.character, one.event) == (NOTHING, NOTHING)
    assert StructuredCaption.from_text(one.scene) == caption


def test_captions_that_would_be_cut_or_confused_are_refused():
    check_captions(CAPTIONS, 128, 4)
    with pytest.raises(ValueError, match="--caption-bytes is 64 and the longest caption has 111 bytes; .* 4 from 112"):
        check_captions(CAPTIONS, 64, 4)
    with pytest.raises(ValueError, match="--caption-bytes is 126"):
        check_captions(CAPTIONS, 126, 4)
    with pytest.raises(ValueError, match="would lose where a field ends"):
        check_captions([StructuredCaption("a hall. The event is: rain")], 128, 4)


def test_the_arms_learn_from_the_same_but_for_the_captions(folder):
    world = starting_world(load_world(folder / "world"), BYTES, 0)
    stores = {arm: open_rewritten([folder / "data"], write) for arm, write in ARMS.items()}
    latents = {arm: LatentStore(store, world.codec, world.config) for arm, store in stores.items()}
    draws = {arm: store.windows(3, 6, torch.Generator().manual_seed(1)) for arm, store in latents.items()}
    for name in draws[STRUCTURED].keys() - {"codes", "active"}:
        assert torch.equal(draws[STRUCTURED][name], draws[MIXED][name])
    original = ClipStore(folder / "data")[0].captions
    assert stores[STRUCTURED][0].captions == original
    assert stores[MIXED][0].captions == tuple((first, mixed(caption)) for first, caption in original)
    assert stores[MIXED].window(0, 0, EVENT_AT + 1).captions == stores[MIXED][0].captions[:2]


def test_the_start_has_the_codec_and_room_for_the_captions_and_depends_on_the_seed_alone(folder):
    origin = load_world(folder / "world")
    one, same, other = (starting_world(origin, BYTES, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    for name, value in origin.codec.state_dict().items():
        assert torch.equal(one[f"codec.{name}"], value) and torch.equal(other[f"codec.{name}"], value)
    assert any(not torch.equal(value, other[name]) for name, value in one.items())
    assert len(one["text.positions"]) == BYTES // TINY.text.stride


def test_events_begin_with_the_first_generated_frame(folder):
    cases = captions.event_cases(ClipStore(folder / "data"), 3, context=3, horizon=4)
    assert len(cases) == 3
    for case in cases:
        assert [caption.event for _, caption in case.clip.captions] == [NOTHING, "it rains"]
        assert case.clip.captions[1][0] == 3 and len(case.clip.frames) == 7
    for arm in ARMS:
        calm = captions.written(cases, arm, events=False)[0].clip
        assert not any("rains" in caption.text() for _, caption in calm.captions)
        assert "rains" in captions.written(cases, arm)[0].clip.caption_at(3).text()
    with pytest.raises(ValueError, match="has no event with 10 frames before it"):
        captions.event_cases(ClipStore(folder / "data"), 3, context=10, horizon=4)


def test_the_difference_is_that_of_the_ratios_not_the_ratio_of_differences():
    structured, other = np.array([[[1.0, 2.0]], [[3.0, 2.0]]]), np.array([[[1.0, 1.0]], [[3.0, 1.0]]])
    line = captions.intervals({STRUCTURED: structured, MIXED: other}, ["a", "b"], 0)
    assert line[captions.DIFFERENCE].mean == 1.0 - 2.0


def test_the_command_trains_resumes_and_reports(command, tmp_path, capsys, monkeypatch):
    assert command("--steps", "1") == 0
    for name in ("start/world.safetensors", "start/config.json"):
        one, other = ((tmp_path / "runs" / arm / name).read_bytes() for arm in ARMS)
        assert one == other
    assert len(list((tmp_path / "runs" / "cache").iterdir())) == 1
    json_file, plot = tmp_path / "out.json", tmp_path / "out.png"
    assert command("--steps", "2", "--json", str(json_file), "--plot", str(plot)) == 0
    printed = capsys.readouterr().out
    assert printed.count("continuing") == 2 and all(f"{arm} captions: 2 steps" in printed for arm in ARMS)
    results = json.loads(json_file.read_text())["results"]
    assert results["training"][MIXED]["step"] == results["training"][STRUCTURED]["step"] == 2
    measures = results["measures"]
    assert f"{captions.PSNR} after 4" in measures and f"{captions.PSNR} after 16" not in measures
    assert captions.CODEC in measures[captions.ROTATION] and captions.FLOOR in measures[f"{captions.PSNR} after 1"]
    assert list(measures[captions.CHANGED]) == [STRUCTURED, MIXED, captions.DIFFERENCE]
    assert plot.is_file()

    def forbidden(*_):
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr("benchmarks.caption_arms.train", forbidden)
    assert command("--steps", "2") == 0
    assert command("--steps", "2", "--seed", "1") == 2
    assert "choose another --runs" in capsys.readouterr().err


def test_a_world_that_listens_responds_to_events_in_either_writing(folder):
    world = starting_world(load_world(folder / "world"), BYTES, 0).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in world.parameters():
        if not parameter.any():  # what starts at zero in training
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    settings = captions.parse(["--context", "3", "--horizon", "4", "--batch", "2"])
    cases = captions.event_cases(ClipStore(folder / "data"), 3, context=3, horizon=4)
    results = captions.respond(dict.fromkeys(ARMS, world), cases, settings)
    for arm in ARMS:
        assert results[captions.CHANGED][arm].shape == (3, 1, 2) and results[captions.CLOSER][arm].shape == (3, 4, 2)
        assert results[captions.CLOSER][arm][..., 0].all(), "every frame changes, from the event's first on"


def test_training_on_the_levels_that_are_measured_is_refused(folder):
    with pytest.raises(ValueError, match="shows the levels that the arms are measured in"):
        captions.check_levels(replace_recipe(ClipStore(folder / "data"), split="test"))
    captions.check_levels(replace_recipe(ClipStore(folder / "data"), split="train"))


def replace_recipe(store: ClipStore, **recipe: str) -> ClipStore:
    store.recipe = recipe
    return store


def test_the_encoder_sees_the_end_of_the_longest_caption(folder):
    """What `check_captions` lets through reaches the encoder whole."""
    encoder = ByteEncoder(replace(TINY.text, max_bytes=BYTES)).eval()
    rain, snow = (mixed(StructuredCaption("a hall", "a knight", event)).scene for event in ("rain", "snow"))
    assert not torch.equal(*encoder.encode([rain, snow]))


def test_an_interrupted_training_says_how_to_go_on(command, tmp_path, capsys, monkeypatch):
    def stopped(stage, run, config, budget, description):
        return checkpointing.Progress(step=1)

    monkeypatch.setattr("benchmarks.caption_arms.train", stopped)
    assert command("--steps", "5") == 2
    assert "was interrupted at step 1; the same command goes on from there" in capsys.readouterr().err
