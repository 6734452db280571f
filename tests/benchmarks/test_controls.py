"""The controls benchmark: measures, alignment of estimates with commands, single controls, and the command."""

import json

import numpy as np
import pytest
import torch

from benchmarks import controls, fidelity, inverse_dynamics, probes, report
from benchmarks.controls import CEILING, FLOOR, GENERATED, RATIO, ROTATION, SHUFFLED, TRANSLATION, VIEW
from benchmarks.probes import PROBES, Probe
from world_model.checkpoint import save_world
from world_model.controls import (
    ACTION_DIM,
    FIRST_PERSON,
    JUMP,
    LATERAL,
    LONGITUDINAL,
    NOTHING,
    PERSPECTIVE,
    PITCH,
    THIRD_PERSON,
    YAW,
    FrameAction,
    StructuredCaption,
)
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.world import World

CLIPS, FRAMES, CONTEXT, HORIZON, SIZE = 4, 12, 3, 4, 32
ZERO = 128  # grey level that stands for 0 in a told row


def telling_clip(index: int) -> Clip:
    """A recording whose frames say which action led to them: six columns of grey."""
    rng = np.random.default_rng(index)
    rows = np.zeros((FRAMES, ACTION_DIM), np.float32)
    rows[:, [PITCH, YAW]] = rng.integers(-9, 10, (FRAMES, 2))
    rows[:, [LONGITUDINAL, LATERAL]] = rng.integers(-1, 2, (FRAMES, 2))
    rows[:, [PERSPECTIVE, JUMP]] = rng.integers(0, 2, (FRAMES, 2))
    frames = np.full((FRAMES, SIZE, SIZE, 3), ZERO, np.uint8)
    frames[:, :, :ACTION_DIM] += rows.astype(np.int8).view(np.uint8)[:, None, :, None]
    return Clip(frames, rows, ((0, StructuredCaption("a hall")),), meta={"level_seed": index // 2})


class Listener:
    """A yardstick that reads what the frames of a telling clip say."""

    def estimate(self, frames: torch.Tensor) -> torch.Tensor:
        return frames[:, 1:, 0, :ACTION_DIM, 0].float() - ZERO


@pytest.fixture(scope="module")
def world() -> World:
    return World.random("tiny").requires_grad_(False)


@pytest.fixture(scope="module")
def folder(world, write_store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("controls")
    save_world(world, folder / "world")
    write_store(folder / "data", [telling_clip(index) for index in range(CLIPS)])
    return folder


@pytest.fixture
def settings(folder):
    sizes = ["--starts", str(CLIPS), "--horizon", str(HORIZON), "--context", str(CONTEXT), "--batch", "3"]
    return controls.parse(["--data", str(folder / "data"), "--world", str(folder / "world"), *sizes])


@pytest.fixture
def cases(folder):
    return fidelity.choose_cases(ClipStore(folder / "data"), CLIPS, CONTEXT + HORIZON)


def test_relative_rotation_is_wrong_degrees_over_commanded_degrees():
    commanded, estimated = np.zeros((2, ACTION_DIM)), np.zeros((2, ACTION_DIM))
    commanded[:, YAW], commanded[0, PITCH], estimated[:, YAW] = (8, -4), 2, (7, -5)
    assert controls.ratio(controls.relative_rotation(estimated, commanded)) == pytest.approx(4 / 14)


def test_jumps_are_counted_where_they_were_commanded():
    commanded, estimated = np.zeros((4, ACTION_DIM)), np.zeros((4, ACTION_DIM))
    commanded[:2, JUMP], estimated[1:, JUMP] = 1, 1
    assert controls.ratio(controls.jumps_seen(estimated, commanded)) == 0.5


def test_nothing_commanded_is_no_division_by_zero():
    assert controls.ratio(np.zeros((3, 2))) == 0


def test_spans_double_and_end_with_the_horizon():
    assert list(controls.spans(64)) == ["all frames", "1-8", "9-16", "17-32", "33-64"]
    assert controls.spans(20)["17-20"] == slice(16, 20)
    assert list(controls.spans(4)) == ["all frames", "1-4"]


def test_estimates_meet_the_commands_of_their_own_frames(world, cases, settings):
    results = controls.recorded_controls(world, Listener(), cases, settings)
    assert results[ROTATION][CEILING]["all frames"].mean == 0
    assert results[TRANSLATION][CEILING]["all frames"].mean == results[VIEW][CEILING]["1-4"].mean == 1
    held = np.stack([case.clip.actions[CONTEXT - 1] for case in cases])[:, None]
    commanded = np.stack([case.clip.actions[CONTEXT:] for case in cases])
    expected = inverse_dynamics.same_translation(held, commanded).mean()
    assert results[TRANSLATION][FLOOR]["all frames"].mean == pytest.approx(expected)


def test_the_ratio_compares_generated_frames_with_the_ceiling(world, cases, settings):
    results = controls.recorded_controls(world, Listener(), cases, settings)[TRANSLATION]
    expected = results[GENERATED]["all frames"].mean / results[CEILING]["all frames"].mean
    assert results[RATIO]["all frames"].mean == pytest.approx(expected)


def test_shuffled_commands_are_those_of_another_case(world, cases, settings, monkeypatch):
    true = {case.clip.actions.tobytes(): torch.tensor(case.clip.frames[CONTEXT:]) for case in cases}
    monkeypatch.setattr(
        fidelity, "generate", lambda stream, batch, rows, *_: torch.stack([true[row.tobytes()] for row in rows])
    )
    results = controls.recorded_controls(world, Listener(), cases, settings)[TRANSLATION]
    assert results[GENERATED]["all frames"].mean == results[RATIO]["all frames"].mean == 1
    assert results[SHUFFLED]["all frames"].mean < 1


def test_every_single_control_is_measured_on_its_own_clips(world, settings):
    clips = {probe: [telling_clip(index) for index in (k, k + 2)] for k, probe in enumerate(PROBES)}
    results = controls.single_controls(world, Listener(), clips, settings)
    assert list(results) == [probe.name for probe in PROBES]
    for probe in PROBES:
        best = 0 if controls.PROBED[probe.column][0] == ROTATION else 1
        assert results[probe.name][CEILING].mean == best and results[probe.name][CEILING].count == 2


def test_probe_rows_hold_one_control_and_switch_the_view_for_good():
    jump = Probe("jump", JUMP, FrameAction(jump=1), held=1).rows(3, THIRD_PERSON)
    assert jump[:, JUMP].tolist() == [1, 0, 0] and not jump[:, PERSPECTIVE].any()
    switch = Probe("switch", PERSPECTIVE, switches=True).rows(3, THIRD_PERSON)
    assert (switch[:, PERSPECTIVE] == FIRST_PERSON).all() and np.count_nonzero(switch) == 3


def test_the_command_prints_its_tables_and_writes_its_results(settings, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings.json, settings.plot = tmp_path / "out.json", tmp_path / "out.png"
    assert report.run(controls.main, settings) == 0
    printed = capsys.readouterr().out
    for text in (f"| {ROTATION}", f"| {CEILING}", f"| {RATIO}", "wanted: at least 95%", "single controls are left out"):
        assert text in printed
    results = json.loads(settings.json.read_text())["results"]
    assert list(results["recorded controls"][TRANSLATION][GENERATED]) == ["all frames", "1-4"]
    assert settings.plot.is_file()


def test_impossible_numbers_end_in_one_sentence(settings, capsys):
    settings.horizon = 0
    assert report.run(controls.main, settings) == 2
    assert capsys.readouterr().err.strip() == "error: --horizon is 0; give at least 1"


@pytest.fixture(scope="module")
def recorded() -> dict[Probe, list[Clip]]:
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    return probes.record(starts=2, context=4, frames=3, size=64, seed=0)


def test_all_probes_of_a_start_share_its_true_frames(recorded):
    for start in range(2):
        first, *others = [clips[start] for clips in recorded.values()]
        for clip in others:
            np.testing.assert_array_equal(clip.frames[:4], first.frames[:4])
    levels = [clip.meta["level_seed"] for clip in recorded[PROBES[0]]]
    assert len(set(levels)) == 2 and all(2 * 10**9 <= level < 3 * 10**9 for level in levels)


def test_the_true_game_does_what_a_probe_says(recorded):
    clips = {probe.name: of_one[0] for probe, of_one in recorded.items()}
    assert (clips["turn right"].actions[4:, YAW] > 7.9).all() and (clips["turn left"].actions[4:, YAW] < -7.9).all()
    assert clips["jump"].pose[4, 2] > clips["stand still"].pose[4, 2]
    switched = clips["switch perspective"]
    assert switched.actions[3, PERSPECTIVE] != switched.actions[4, PERSPECTIVE]
    assert (switched.caption_at(4).character == NOTHING) == (switched.actions[4, PERSPECTIVE] == FIRST_PERSON)


def test_the_yardstick_sees_which_way_the_true_game_turns(recorded):
    yardstick = inverse_dynamics.load()
    for name, sign in (("turn right", 1), ("turn left", -1)):
        (probe,) = (probe for probe in recorded if probe.name == name)
        frames = torch.from_numpy(np.stack([clip.frames[3:] for clip in recorded[probe]]))
        assert (sign * yardstick.estimate(frames)[..., YAW]).mean() > 4
