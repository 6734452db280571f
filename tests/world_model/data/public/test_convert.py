"""What ends an import and what does not; parts of long clips; the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from world_model.controls import PERSPECTIVE, YAW
from world_model.data.public import folder, manifest, sekai, spatialvid
from world_model.data.public.convert import ImportSettings, convert
from world_model.data.store import MANIFEST, ClipStore
from wp2env.cli.main import main as wp2

SMALL = ImportSettings(height=16, width=16, frame_rate=10.0, shortest=8)


@pytest.fixture
def walks(tmp_path, film, walk, stroll):
    """Two good walks of 40 frames at 10 a second, and their cameras to write anew."""
    place, rows = tmp_path / "walks", stroll(40) * [1, 0.3, 1, 1, 1, 1]
    cameras = walk(rows)
    for name in ("a", "b"):
        film(place / f"{name}.mp4", np.cumsum(rows[:, YAW]))
        (place / f"{name}.json").write_text('{"scene": "stripes"}')
        np.savez(place / f"{name}.npz", camera_to_world=cameras)
    return place, cameras


def test_a_nan_ends_the_import_unless_told_otherwise(walks, tmp_path):
    place, cameras = walks
    cameras[17, 0, 3] = np.nan
    np.savez(place / "a.npz", camera_to_world=cameras)
    sentence = f"{place / 'a.npz'}, frame 17: the pose holds a value that is not a finite number"
    with pytest.raises(ValueError) as told:
        convert(folder.read(place, "CC0"), tmp_path / "out", SMALL)
    assert str(told.value) == sentence and not (tmp_path / "out" / MANIFEST).exists()
    store, outcome = convert(folder.read(place, "CC0"), tmp_path / "out", SMALL, skip_broken=True)
    assert (outcome.kept, outcome.broken, len(store)) == (1, 1, 1)
    records = list(manifest.read(tmp_path / "out"))
    assert [(record.name, record.index) for record in records] == [("a", None), ("b", 0)]
    assert records[0].refused == (sentence,) and records[1].refused == ()


def test_a_gap_and_a_short_trajectory_are_named(walks, tmp_path):
    place, cameras = walks
    frames = np.delete(np.arange(40), [20, 21])
    np.savez(place / "a.npz", camera_to_world=cameras[frames], frames=frames)
    with pytest.raises(ValueError, match=r"a\.npz, frame 19: poses are missing from here up to frame 22"):
        convert(folder.read(place, "CC0"), tmp_path / "out", SMALL)
    np.savez(place / "a.npz", camera_to_world=cameras[:25])
    with pytest.raises(ValueError, match=r"a\.npz, frame 24: the poses end here, but the video goes on to frame 39"):
        convert(folder.read(place, "CC0"), tmp_path / "out", SMALL)


def test_long_clips_are_cut_and_short_rests_left_out(walks, tmp_path):
    settings = ImportSettings(height=16, width=16, frame_rate=10.0, shortest=8, longest=16, shard_bytes=1)
    store, outcome = convert(folder.read(walks[0], "CC0"), tmp_path / "out", settings)
    whole, _ = convert(folder.read(walks[0], "CC0"), tmp_path / "whole", SMALL)
    parts = [store[index] for index in range(3)]
    assert [len(part.frames) for part in parts] == [16, 16, 8] and len(store.entries) == outcome.kept == 6
    assert np.array_equal(np.concatenate([part.frames for part in parts]), whole[0].frames)
    for start, part in zip((0, 16, 32), parts, strict=True):
        assert np.allclose(part.actions[1:], whole[0].actions[start + 1 : start + len(part.actions)], atol=1e-5)
        assert not np.delete(part.actions[0], PERSPECTIVE).any() and part.actions[0, PERSPECTIVE] == 1
    assert [record.first_frame for record in manifest.read(tmp_path / "out")] == [0, 16, 32] * 2


def test_nothing_kept_and_a_folder_in_use(walks, tmp_path):
    strict = ImportSettings(height=16, width=16, frame_rate=10.0, shortest=100)
    with pytest.raises(ValueError, match="nothing was kept: 2 parts refused, 0 clips broken"):
        convert(folder.read(walks[0], "CC0"), tmp_path / "out", strict)
    convert(folder.read(walks[0], "CC0"), tmp_path / "out", SMALL)
    with pytest.raises(ValueError, match="holds clips already"):
        convert(folder.read(walks[0], "CC0"), tmp_path / "out", SMALL)


@pytest.mark.parametrize(
    "settings", [{"height": 20}, {"width": 0}, {"frame_rate": 0}, {"frame_rate": float("nan")}, {"shortest": 1}]
)
def test_impossible_settings(settings):
    with pytest.raises(ValueError, match="must be|impossible"):
        ImportSettings(**settings)


@pytest.mark.parametrize("read", [sekai.read, spatialvid.read, lambda path: folder.read(path, "CC0")])
def test_a_folder_of_another_layout_is_named(tmp_path, read):
    (tmp_path / "other.csv").write_text("")
    with pytest.raises(ValueError, match="holds no"):
        list(read(tmp_path))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("a.npz", {"camera": np.eye(4)}, "neither camera_to_world nor world_to_camera"),
        ("a.npz", b"no zip", "no readable file of arrays"),
        ("a.npz", b"", "no readable file of arrays"),
        ("a.npz", b"PK\x03\x04", "no readable file of arrays"),
        ("a.npz", {"camera_to_world": np.array(["x"])}, "camera_to_world is not made of numbers"),
        ("a.npz", None, "no poses beside it"),
        ("a.txt", b"0 0 0 0 0 0 0 1\n1 2\n", "line 2 has 2 numbers instead of 8"),
        ("a.txt", b"# t\n0 x\n", "line 2 is not made of numbers"),
        ("a.json", b"{", "is not JSON"),
        ("a.mp4", b"", "is not a video"),
    ],
)
def test_broken_files_of_a_folder_are_named(walks, tmp_path, file, content, message):
    if not file.endswith("json"):
        (walks[0] / "a.npz").unlink()
    if isinstance(content, dict):
        np.savez(walks[0] / file, **content)
    elif content is not None:
        (walks[0] / file).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        convert(folder.read(walks[0], "CC0"), tmp_path / "out", SMALL)


def test_broken_camera_files_of_sekai_are_named(tmp_path):
    for name, content in (("no.npz", None), ("text.npz", b"text")):
        if content:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            sekai.read_poses(tmp_path / name, False)
    np.savez(tmp_path / "other.npz", poses=np.eye(4))
    with pytest.raises(ValueError, match=r"other\.npz: it holds none of extrinsic"):
        sekai.read_poses(tmp_path / "other.npz", False)
    (tmp_path / "pieces").mkdir()
    np.savez(tmp_path / "pieces" / "first.npz", extrinsic=np.eye(4)[None])
    with pytest.raises(ValueError, match=r"first\.npz: the name of a piece must begin with the number"):
        sekai.read_poses(tmp_path / "pieces", False)


def test_the_command(walks, tmp_path, capsys):
    limits = tmp_path / "limits.json"
    limits.write_text(json.dumps({"quality": {"activity": 0.1}, "actions": {"moving": 0.4}}))
    call = ["import", "folder", "--source", str(walks[0]), "--out", str(tmp_path / "out"), "--size", "16x24"]
    call += ["--shortest", "8", "--settings", str(limits), "--no-progress"]
    assert wp2(call) == 2 and "--licence" in capsys.readouterr().err
    assert wp2([*call, "--licence", "CC0", "--view", "tps", "--limit", "1"]) == 0
    assert f"1 clips in {tmp_path / 'out'}, 35 frames" in capsys.readouterr().out
    store = ClipStore(tmp_path / "out")
    assert store[0].frames.shape[1:] == (16, 24, 3) and (store[0].actions[:, PERSPECTIVE] == 0).all()
    assert store.recipe["settings"]["actions"]["moving"] == 0.4 and store.recipe["layout"] == "folder"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"speed": {}}', "'speed' is no group"),
        ("[]", "is no group"),
        ('{"quality": {"noise": 1}}', "quality knows no 'noise'"),
        ('{"actions": {"moving": "fast"}}', "must be a number"),
    ],
)
def test_wrong_thresholds_are_named(walks, tmp_path, capsys, content, message):
    (tmp_path / "limits.json").write_text(content)
    call = ["import", "folder", "--source", str(walks[0]), "--out", str(tmp_path / "out"), "--licence", "CC0"]
    assert wp2([*call, "--settings", str(tmp_path / "limits.json")]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_size_and_a_wrong_folder_are_answered(tmp_path, capsys):
    with pytest.raises(SystemExit):
        wp2(["import", "folder", "--source", str(tmp_path), "--out", "o", "--size", "big"])
    assert "'big' is not a size" in capsys.readouterr().err
    assert wp2(["import", "sekai", "--source", str(tmp_path / "none"), "--out", "o"]) == 2
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("key", sekai.CAMERAS)
def test_world_to_camera_matrices_of_sekai(walk, stroll, tmp_path, key):
    cameras = walk(stroll(9))
    np.savez(tmp_path / "a.npz", **{key: np.linalg.inv(cameras)[:, :3]})
    np.savez(tmp_path / "b.npz", **{key: cameras})
    assert np.allclose(sekai.read_poses(tmp_path / "a.npz", True).cameras, cameras)
    assert np.array_equal(sekai.read_poses(tmp_path / "b.npz", False).cameras, cameras)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("folder", "--poses", "world_to_camera"), "--poses is for sekai and spatialvid"),
        (("sekai", "--licence", "CC0"), "--licence is for the layout folder; sekai tells it itself"),
        (("spatialvid", "--view", "tps"), "--view is for the layout folder; spatialvid tells it itself"),
    ],
)
def test_options_that_a_layout_has_no_use_for_are_refused(tmp_path, capsys, words, message):
    assert wp2(["import", *words, "--source", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
