"""The comparison of samplers on a tiny distilled world with random heads and a made-up recording."""

import json

import numpy as np
import pytest
import torch

from benchmarks import few_step, fidelity, report
from benchmarks.fidelity import CEILING, FLOOR
from world_model.checkpoint import save_world
from world_model.controls import ACTION_DIM, PERSPECTIVE, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.sampling import renoised
from world_model.world import World

CLIPS, FRAMES, CONTEXT, SIZE = 4, 7, 3, 32


def made_up_clip(index: int) -> Clip:
    rng = np.random.default_rng(index)
    rows = np.zeros((FRAMES, ACTION_DIM), np.float32)
    rows[:, PERSPECTIVE] = 1
    frames = rng.integers(0, 256, (FRAMES, SIZE, SIZE, 3), dtype=np.uint8)
    return Clip(frames, rows, ((0, StructuredCaption("a hall")),), meta={"level_seed": index // 2})


@pytest.fixture(scope="module")
def student(listening_world) -> World:
    """Two blocks of two intervals, each with a head of its own."""
    world = listening_world.with_blocks((2, 2))
    generator = torch.Generator().manual_seed(1)
    heads = world.parallel_decoder.weight
    with torch.no_grad():
        heads += 0.3 * torch.randn(heads.shape, generator=generator)
    return world.requires_grad_(False)


@pytest.fixture(scope="module")
def folder(student, listening_world, write_store, tmp_path_factory):
    """A folder with the distilled world, its teacher and a store."""
    folder = tmp_path_factory.mktemp("few-step")
    save_world(student, folder / "student", torch.float32)
    save_world(listening_world, folder / "teacher", torch.float32)
    write_store(folder / "data", [made_up_clip(index) for index in range(CLIPS)])
    return folder


@pytest.fixture
def settings(folder):
    words = ["--world", str(folder / "student"), "--teacher", str(folder / "teacher"), "--data", str(folder / "data")]
    words += ["--starts", "4", "--horizon", "4", "--context", "3", "--many", "3", "--slots", "1", "--rounds", "1"]
    return few_step.parse(words)


def test_every_number_of_evaluations_and_every_sampler_takes_part(student, listening_world):
    entrants = few_step.contestants(student, listening_world, 3)
    assert [(e.name, e.evaluations) for e in entrants] == [
        ("student, 2", 2),
        ("student, 1", 1),
        ("student, 2, renoised", 2),
        ("teacher, 1", 1),
        ("teacher, 2", 2),
        ("teacher, 3", 3),
    ]
    assert entrants[2].sampler is renoised
    assert entrants[-1].world.config.memory == student.config.memory and not entrants[-1].world.config.flow.blocks
    assert len(few_step.contestants(student, None, 3)) == 3


def test_a_world_that_was_not_distilled_is_refused(listening_world):
    with pytest.raises(ValueError, match="'tiny' was not distilled; give a --world of the few_step stage"):
        few_step.contestants(listening_world, None, 3)


def test_the_contestants_differ_and_what_stands_beside_is_what_it_says(student, listening_world, folder, settings):
    cases = fidelity.choose_cases(ClipStore(folder / "data"), CLIPS, FRAMES)
    entrants = few_step.contestants(student, listening_world, 3)
    seen = few_step.compare(entrants, cases, settings)
    values = [of.psnr.tobytes() for of in seen.values()]
    assert len(set(values)) == len(values) == 8
    floor = fidelity.true_frames(cases)[:, CONTEXT - 1 : CONTEXT].expand(-1, 4, -1, -1, -1)
    np.testing.assert_allclose(seen[FLOOR].psnr, report.psnr(floor, fidelity.true_frames(cases)[:, CONTEXT:]))
    assert (seen[FLOOR].looks["motion"][:, 0] == 0).all() and (seen[FLOOR].looks["motion"][:, 1] > 0).all()
    assert seen[CEILING].looks["contrast"].shape == (CLIPS, 2)


def test_speeds_are_relative_to_the_worlds_own_number_of_evaluations(student):
    entrants = few_step.contestants(student, None, 3)
    seen = {e.name: few_step.Seen(np.ones((2, 1)), {}) for e in entrants}
    rows = few_step.summarise(seen, entrants, np.array([[2.0, 4.0, 1.0], [1.0, 2.0, 0.5]]), ["a", "b"], 0)
    assert [row[few_step.RELATIVE].mean for row in rows.values()] == [1.0, 2.0, 0.5]
    assert few_step.time_all(entrants, slots=1, rounds=2, seed=0).shape == (2, 3)


def test_differences_are_the_students_own_minus_the_others():
    entrants = [few_step.Contestant(name, None, 1) for name in ("one", "other")]
    seen = {"one": few_step.Seen(np.array([[3.0], [5.0]]), {}), "other": few_step.Seen(np.array([[1.0], [2.0]]), {})}
    (line,) = few_step.differences(seen, entrants, ["a", "b"], 0).values()
    assert (line["PSNR after 1 (dB)"].mean, line["PSNR after 1 (dB)"].low) == (2.5, 2.0)


def test_the_command_prints_its_tables_and_writes_its_results(settings, tmp_path, capsys):
    settings.json, settings.plot = tmp_path / "out.json", tmp_path / "out.png"
    assert report.run(few_step.main, settings) == 0
    printed = capsys.readouterr().out
    for name in ("student, 2 ", "student, 2, renoised", "teacher, 3", FLOOR, CEILING, "student, 2 - (teacher, 3)"):
        assert f"| {name}" in printed
    results = json.loads(settings.json.read_text())["results"]
    assert list(results["measures"]["student, 2"]) == [
        *(f"PSNR after {n} (dB)" for n in (1, 2, 4)),
        "motion",
        "contrast",
        few_step.SPEED,
        few_step.RELATIVE,
    ]
    assert settings.plot.is_file()


def test_impossible_numbers_end_in_one_sentence(settings, capsys):
    settings.many = 0
    assert report.run(few_step.main, settings) == 2
    assert capsys.readouterr().err.strip() == "error: --many is 0; give at least 1"
