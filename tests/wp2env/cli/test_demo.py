"""The demo: a script becomes a video, in worlds of any chunk and size, whole or not at all."""

from __future__ import annotations

import argparse
from dataclasses import replace

import imageio.v3 as imageio
import numpy as np
import pytest

from world_model.checkpoint import save_world
from world_model.config import TINY, VideoConfig
from world_model.controls import FIRST_PERSON, PERSPECTIVE, THIRD_PERSON
from world_model.world import World
from wp2env.cli import demo, video

FRAME = 32


@pytest.fixture
def run(wp2, folder, tmp_path):
    """`wp2 demo` as fast as it can be, in the tiny world unless told otherwise."""

    def run(*words, world=folder, out=None):
        return wp2("demo", "--world", world, "--steps", "1", "--out", out or tmp_path / "demo.mp4", *words)

    return run


def settings(**given) -> argparse.Namespace:
    defaults = {"actions": None, "views": None, "events": None, "yaw": 10.0, "pitch": 3.0}
    return argparse.Namespace(**{**defaults, **given})


def test_the_default_script_has_a_typed_event_and_a_change_of_perspective(run, tmp_path):
    answer = run("--plain")
    assert answer.code == 0
    assert answer.out.startswith(f"{tmp_path / 'demo.mp4'}: 64 frames of hall ")
    assert "the lights go out; perspective switched 1x" in answer.out
    assert "frames a second" in answer.out and answer.out.count("\n") == 2
    frames = imageio.imread(tmp_path / "demo.mp4")
    assert frames.shape == (64, 6 * FRAME, 6 * FRAME, 3)
    assert imageio.immeta(tmp_path / "demo.mp4")["fps"] == pytest.approx(8.75, abs=0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["demo.mp4"]


@pytest.mark.parametrize("latents", [1, 2, 4, 6, 16])
def test_the_default_script_fits_every_chunk(latents):
    plan = demo.plan(settings(), latents)
    assert plan.view == FIRST_PERSON and THIRD_PERSON in plan.rows[:, PERSPECTIVE]
    assert plan.events[0] == "None" and "the lights go out" in plan.events and plan.events[-1] == "None"
    changes = [latent for latent in range(1, 64) if plan.events[latent] != plan.events[latent - 1]]
    assert len(changes) == 2 and all((latent - 1) % latents == 0 for latent in changes)


def test_an_event_is_in_force_from_its_latent_or_the_next_chunk_on():
    told = {"actions": "w-16", "events": "None-8,rain-8"}
    assert demo.plan(settings(**told), 1).events == ["None"] * 8 + ["rain"] * 8
    assert demo.plan(settings(**told), 4).events == ["None"] * 9 + ["rain"] * 7


def test_chunks_of_several_latents_and_frames(run, chunked_folder, tmp_path):
    answer = run("--zoom", "2", "--plain", world=chunked_folder)
    assert answer.code == 0, answer.err
    assert imageio.imread(tmp_path / "demo.mp4").shape == (1 + 63 * 4, 2 * FRAME, 2 * FRAME, 3)


def test_a_script_that_ends_inside_a_chunk_ends_there(run, chunked_folder, tmp_path):
    assert run("--actions", "w-7", world=chunked_folder).code == 0
    assert len(imageio.imread(tmp_path / "demo.mp4")) == 1 + 6 * 4


def test_a_wide_world_that_begins_from_text(run, tmp_path):
    config = replace(TINY, video=VideoConfig(height=32, width=64))
    save_world(World.random(config), tmp_path / "wide")
    answer = run("--actions", "w-4", "--scene", "a hall", "--zoom", "3", world=tmp_path / "wide")
    assert answer.code == 0 and "4 frames of a hall; no event; perspective switched 0x" in answer.out
    height, width = imageio.imread(tmp_path / "demo.mp4").shape[1:3]
    assert width == 3 * 64 and height > 3 * 32


def test_a_gif_loops_at_the_worlds_pace(run, tmp_path):
    assert run("--actions", "w-6,left-6", "--zoom", "1", "--plain", out=tmp_path / "walk.gif").code == 0
    assert imageio.imread(tmp_path / "walk.gif").shape == (12, FRAME, FRAME, 3)
    meta = imageio.immeta(tmp_path / "walk.gif")
    assert meta["loop"] == 0 and meta["duration"] == pytest.approx(1000 / 8.75, abs=10)


def test_the_seed_decides_and_the_actions_matter(run, tmp_path):
    def frames(name, *words):
        assert run(*words, "--zoom", "1", "--plain", out=tmp_path / f"{name}.gif").code == 0
        return imageio.imread(tmp_path / f"{name}.gif")

    first = frames("a", "--actions", "w-6")
    np.testing.assert_array_equal(first, frames("b", "--actions", "w-6"))
    assert (first != frames("c", "--actions", "s-6")).any()
    assert (first != frames("d", "--actions", "w-6", "--seed", "1")).any()
    assert (first != frames("e", "--actions", "w-6", "--events", "rain-6")).any()


def test_the_video_starts_in_the_view_of_the_script(run, tmp_path):
    answer = run("--actions", "w-4", "--views", "tps-4")
    assert answer.code == 0 and "hall 1" in answer.out  # the only start in third person


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--actions", "w"], "--actions: segment 0"),
        (["--actions", "fly-8"], "'fly' is not a control"),
        (["--actions", ""], "--actions"),
        (["--views", "fps-8"], "--views"),
        (["--actions", "w-8", "--views", "bird-8"], "'bird'"),
        (["--actions", "w-8", "--events", "rain-9"], "--events"),
        (["--device", "toaster"], "'toaster'"),
    ],
)
def test_a_malformed_script_is_one_sentence(run, tmp_path, words, named):
    assert named in run(*words).error
    assert not list(tmp_path.iterdir())


def test_an_event_inside_a_chunk_is_refused_when_the_user_wrote_it(run, chunked_folder):
    error = run("--actions", "w-16", "--events", "None-6,rain-10", world=chunked_folder).error
    assert "--events" in error and "multiple of the chunk's 4" in error


def test_a_missing_world_and_missing_starts_say_what_to_do(run, bankless_folder):
    assert "wp2 train" in run(world="nowhere").error
    assert "--scene" in run(world=bankless_folder).error


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("demo.avi", ".mp4 or .gif"),
        ("demo", ".mp4 or .gif"),
        ("none/demo.mp4", "make it first"),
        ("f.mp4", "f.mp4 is a folder"),
    ],
)
def test_a_video_that_cannot_be_written_is_refused_before_the_world_is_loaded(run, tmp_path, name, named):
    (tmp_path / "f.mp4").mkdir()
    assert named in run(out=tmp_path / name, world="nowhere").error


def test_a_place_without_permission_is_refused(run, monkeypatch, tmp_path):
    def denied(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(video.Path, "touch", denied)
    assert f"{tmp_path / 'demo.mp4'} cannot be written (Permission denied)" in run().error


def test_an_interrupted_video_leaves_the_old_one(run, monkeypatch, tmp_path):
    (tmp_path / "demo.mp4").write_bytes(b"old")

    pictures = iter([np.zeros((192, 192, 3), np.uint8)] * 3)

    def interrupted(*args):
        picture = next(pictures, None)
        if picture is None:
            raise KeyboardInterrupt
        return picture

    monkeypatch.setattr(video, "with_lines", interrupted)
    assert run("--actions", "w-6").code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["demo.mp4"]
    assert (tmp_path / "demo.mp4").read_bytes() == b"old"


def test_long_lines_are_broken_and_every_picture_has_the_same_height(tmp_path):
    frames = [np.zeros((32, 32, 3), np.uint8)] * 2
    row = np.array([0, 12, 1, 0, 1, 0], np.float32)
    strips = [video.Strip(row, "None"), video.Strip(row, "a very long event that does not fit under a small picture")]
    video.write_video(tmp_path / "a.gif", frames, 8.75, 4, strips)
    written = imageio.imread(tmp_path / "a.gif")
    assert written.shape[0] == 2 and written.shape[1] > 4 * 32 + 5 * video.LINE
    below = written[:, 4 * 32 :]
    assert below[0].any() and below[1].any() and not below[:, -video.MARGIN :].any()
    assert (below[0] != below[1]).any()


def test_the_strip_names_what_the_row_does():
    (words, _), (event, _) = video.Strip(np.array([-3, 12, 1, -1, 0, 1], np.float32), "rain").lines()
    assert words == "third person forward left turn +12 tilt -3 jump" and event == "rain"
    (words, _), (event, _) = video.Strip(np.array([0, 0, 0, 0, 1, 0], np.float32), "None").lines()
    assert words == "first person" and event == ""
