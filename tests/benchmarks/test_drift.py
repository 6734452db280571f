"""The drift benchmark on a tiny world with random weights and made-up recordings."""

import json

import numpy as np
import pytest
import torch

from benchmarks import drift, report
from benchmarks.horizon import random_world
from world_model.checkpoint import save_world
from world_model.controls import ACTION_DIM, LATERAL, PERSPECTIVE, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.world import World

LEVELS, SIZE, FRAMES = 3, 32, 20


def made_up_clip(level: int, index: int) -> Clip:
    rng = np.random.default_rng([level, index])
    rows = np.zeros((FRAMES, ACTION_DIM), np.float32)
    rows[1:, LATERAL], rows[0, LATERAL] = 1, -1
    rows[:, PERSPECTIVE] = [*[0] * 6, *[1] * (FRAMES - 6)]
    captions = [(0, StructuredCaption("a hall"))]
    if index == 2:
        captions.append((9, StructuredCaption("a hall", event="it rains")))
    frames = rng.integers(0, 256, (FRAMES, SIZE, SIZE, 3), dtype=np.uint8)
    return Clip(frames, rows, tuple(captions), meta={"level_seed": level})


@pytest.fixture(scope="module")
def world() -> World:
    return random_world("tiny", 0).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def folder(world, write_store, tmp_path_factory):
    """A folder with that world and, of every level, two recordings without and one with an event."""
    folder = tmp_path_factory.mktemp("drift")
    save_world(world, folder / "world")
    write_store(folder / "data", [made_up_clip(level, index) for level in range(LEVELS) for index in range(3)])
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(drift, "TRUE_FRAMES", FRAMES)
    monkeypatch.setattr(drift, "SHORTEST", 4)


@pytest.fixture
def settings(folder):
    data, world = str(folder / "data"), str(folder / "world")
    return drift.parse(
        ["--data", data, "--world", world, "--starts", "3", "--horizon", "10", "--batch", "2", "--steps", "1"]
    )


@pytest.fixture
def starts(folder):
    return drift.choose_starts(ClipStore(folder / "data"), LEVELS, 30, np.random.default_rng(0))


def test_segments_cover_the_horizon_and_double(monkeypatch):
    monkeypatch.setattr(drift, "SHORTEST", 50)
    assert drift.segments(300, 1) == [(0, 50), (50, 100), (100, 200), (200, 300)]
    assert drift.segments(2000, 1)[-2:] == [(800, 1600), (1600, 2000)]
    assert drift.segments(30, 1) == [(0, 30)]
    assert all(begin % 4 == 0 for begin, _ in drift.segments(400, 4))


def test_a_start_has_its_level_to_itself_and_no_event(starts):
    assert [start.level for start in starts] == ["0", "1", "2"]
    for start in starts:
        clips = (start.clip, *start.others)
        assert len(clips) == 2 and all(len(clip.captions) == 1 for clip in clips)
        assert not np.array_equal(start.clip.frames, start.others[0].frames)


def test_controls_are_recorded_ones_under_the_start_s_view(starts):
    rows = starts[0].rows
    assert rows.shape == (drift.CONTEXT + 30, ACTION_DIM)
    assert (rows[:FRAMES] == starts[0].clip.actions)[:, :PERSPECTIVE].all()
    assert rows[1:, LATERAL].tolist() == [1] * 37  # the first row of a recording is none of its moves
    assert rows[: drift.CONTEXT, PERSPECTIVE].tolist() == [0] * 6 + [1] * 2 and (rows[8:, PERSPECTIVE] == 1).all()


def test_too_few_levels_are_refused(folder):
    with pytest.raises(ValueError, match="has 3 levels with two recordings of at least 20 frames and no event, and 4"):
        drift.choose_starts(ClipStore(folder / "data"), 4, 30, np.random.default_rng(0))


def test_what_stands_beside_is_what_it_says(world, starts, settings):
    generated, rivals = drift.compare(world, starts, drift.codec_features(world), settings)
    assert len(generated) == len(drift.segments(10, 1)) == 3
    assert all(len(seen.features) == LEVELS and seen.looks["motion"].shape == (LEVELS,) for seen in generated)
    last = np.stack([start.clip.frames[drift.CONTEXT - 1] for start in starts])
    floor, true = rivals[drift.FLOOR], rivals[drift.TRUE]
    assert np.allclose(floor.looks["motion"], 0) and all(np.ptp(f, axis=0).max() < 1e-4 for f in floor.features)
    grey = last @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(floor.looks["brightness"], grey.mean((1, 2)), rtol=1e-4)
    followed = np.stack([start.clip.frames[drift.CONTEXT - 1 :] for start in starts]).astype(float)
    np.testing.assert_allclose(true.looks["motion"], np.abs(np.diff(followed, axis=1)).mean((1, 2, 3, 4)), rtol=1e-4)


def test_rollouts_go_on_where_the_segment_before_ended(world, starts):
    rows = [start.rows for start in starts]
    whole = torch.cat(list(drift.roll_out(world, starts, [(0, 4), (4, 8)], [1, 2, 3], 1)), dim=1)
    again = torch.cat(list(drift.roll_out(world, starts, [(0, 8)], [1, 2, 3], 1)), dim=1)
    assert whole.shape == (3, 8, SIZE, SIZE, 3) and torch.equal(whole, again) and len(rows) == 3


def test_features_tell_bright_pictures_from_dark_ones(world):
    features = drift.codec_features(world)
    pictures = torch.randint(0, 128, (70, SIZE, SIZE, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    dark, bright = features(pictures), features(pictures + 100)
    assert dark.shape == (70, 2 * world.config.codec.latent_channels)
    np.testing.assert_allclose(features(pictures[:3]), dark[:3], atol=1e-4)
    same, apart = (drift.frechet_interval([dark[:35]], [other], 0).mean for other in (dark[35:], bright[35:]))
    assert apart > 2 * same


def test_the_command_prints_its_tables_and_writes_its_results(settings, tmp_path, capsys):
    settings.json, settings.plot = tmp_path / "out.json", tmp_path / "out.png"
    assert report.run(drift.main, settings) == 0
    printed = capsys.readouterr().out
    for line in ("1-4", "5-8", "9-10", drift.TRUE, drift.CODEC, drift.FLOOR):
        assert f"| {line} " in printed
    assert "unlike the true game in frames 9-10" in printed
    results = json.loads(settings.json.read_text())["results"]
    assert list(results["generated"]) == ["1-4", "5-8", "9-10"]
    assert set(results["beside"][drift.TRUE]) == {*drift.DECIMALS, drift.DISTANCE}
    assert settings.plot.is_file()


def test_impossible_numbers_end_in_one_sentence(settings, capsys):
    settings.starts = 1
    assert report.run(drift.main, settings) == 2
    assert capsys.readouterr().err.strip() == "error: --starts is 1; give at least 2"
