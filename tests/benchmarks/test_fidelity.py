"""The fidelity benchmark on a tiny world with random weights and a made-up recording."""

import json

import numpy as np
import pytest
import torch

from benchmarks import fidelity, report
from world_model.checkpoint import save_world
from world_model.controls import ACTION_DIM, PERSPECTIVE, YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.world import World

CLIPS, FRAMES, SIZE = 6, 12, 32


def made_up_clip(index: int) -> Clip:
    rng = np.random.default_rng(index)
    rows = np.zeros((FRAMES, ACTION_DIM), np.float32)
    rows[:, YAW], rows[:, PERSPECTIVE] = index, index % 2
    captions = ((0, StructuredCaption("a hall")), (6, StructuredCaption("a hall", event="it rains")))
    frames = rng.integers(0, 256, (FRAMES, SIZE, SIZE, 3), dtype=np.uint8)
    return Clip(frames, rows, captions, meta={"level_seed": index // 2})


@pytest.fixture(scope="module")
def world(listening_world) -> World:
    return listening_world


@pytest.fixture(scope="module")
def folder(world, write_store, tmp_path_factory):
    """A folder with that world and a store of random clips."""
    folder = tmp_path_factory.mktemp("fidelity")
    save_world(world, folder / "world")
    write_store(folder / "data", [made_up_clip(index) for index in range(CLIPS)])
    return folder


@pytest.fixture
def settings(folder):
    data, world = str(folder / "data"), str(folder / "world")
    return fidelity.parse(
        ["--data", data, "--world", world, "--starts", "6", "--horizon", "4", "--context", "3", "--batch", "4"]
    )


def test_every_start_gets_another_clips_actions_but_keeps_its_view(folder):
    cases = fidelity.choose_cases(ClipStore(folder / "data"), CLIPS, FRAMES)
    assert [case.shuffled[0, YAW] for case in cases] == [3, 4, 5, 0, 1, 2]
    assert [case.shuffled[0, PERSPECTIVE] for case in cases] == [case.clip.actions[0, PERSPECTIVE] for case in cases]
    assert [case.level for case in cases] == ["0", "0", "1", "1", "2", "2"]


def test_too_few_recordings_are_refused(folder):
    with pytest.raises(ValueError, match="has 6 clips of at least 12 frames and 7 are needed"):
        fidelity.choose_cases(ClipStore(folder / "data"), 7, FRAMES)


def test_the_floor_and_the_ceiling_are_what_they_say(world, folder, settings):
    cases = fidelity.choose_cases(ClipStore(folder / "data"), CLIPS, 7)
    values = fidelity.compare(world, cases, settings)["PSNR (dB)"]
    true = torch.from_numpy(np.stack([case.clip.frames for case in cases]))
    floor = report.psnr(true[:, 2:3].expand(-1, 4, -1, -1, -1), true[:, 3:])
    np.testing.assert_allclose(values[fidelity.FLOOR], floor)
    assert values[fidelity.CEILING].shape == values[fidelity.GENERATED].shape == (CLIPS, 4)
    assert not np.array_equal(values[fidelity.GENERATED], values[fidelity.SHUFFLED])


def test_a_start_looks_the_same_whatever_runs_beside_it(world, folder):
    cases = fidelity.choose_cases(ClipStore(folder / "data"), CLIPS, 7)
    rows = np.stack([case.clip.actions for case in cases])
    together = fidelity.generate(world.stream(6), cases, rows, 3, list(range(6)))
    alone = fidelity.generate(world.stream(1), cases[2:3], rows[2:3], 3, [2])
    assert (together[2].int() - alone[0].int()).abs().max() <= 1


def test_the_command_prints_a_table_and_writes_its_results(settings, tmp_path, capsys):
    settings.json, settings.plot = tmp_path / "out.json", tmp_path / "out.png"
    assert report.run(fidelity.main, settings) == 0
    printed = capsys.readouterr().out
    for name in (fidelity.GENERATED, fidelity.SHUFFLED, fidelity.FLOOR, fidelity.CEILING, *fidelity.DIFFERENCES):
        assert f"| {name}" in printed
    results = json.loads(settings.json.read_text())["results"]
    assert set(results) == {"PSNR (dB)", "SSIM"}
    assert list(results["SSIM"][fidelity.GENERATED]) == ["1", "2", "3", "4"]
    assert settings.plot.is_file()


def test_impossible_numbers_end_in_one_sentence(settings, capsys):
    settings.horizon = 0
    assert report.run(fidelity.main, settings) == 2
    assert capsys.readouterr().err.strip() == "error: --horizon is 0; give at least 1"


def test_a_missing_game_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install \"worldplay2-gym\[doom\]\""):
        fidelity.load_clips(None, 4, 8, 32, 0)
