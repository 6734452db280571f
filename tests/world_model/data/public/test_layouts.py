"""A made-up set in each public layout goes through reader, filter, store and one training step."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from world_model.config import TINY, to_json
from world_model.controls import LONGITUDINAL, YAW, StructuredCaption
from world_model.data.public import folder, manifest, sekai, spatialvid
from world_model.data.public.convert import ImportSettings, convert
from world_model.data.public.poses import PoseError, inverse
from world_model.training.latents import LatentStore
from world_model.training.loop import Budget, train
from world_model.training.navigation import NavigationStage
from world_model.world import World

RATE, LENGTH = 20.0, 80  # of the made-up videos
SMALL = ImportSettings(height=32, width=32, frame_rate=8.75, shortest=8)


@pytest.fixture(scope="module")
def cameras(walk, stroll):
    rows = stroll(LENGTH, seed=3) * [1, 0.2, 1, 1, 1, 1]
    return rows, walk(rows, step=0.07)


def quaternions(cameras):
    """Matrices as tx, ty, tz, qx, qy, qz, qw, for turns about y and x below half a circle."""
    rows = np.zeros((len(cameras), 7))
    for row, camera in zip(rows, cameras, strict=True):
        w = np.sqrt(max(0.0, 1 + np.trace(camera[:3, :3]))) / 2
        r = camera[:3, :3]
        row[:3], row[6] = camera[:3, 3], w
        row[3:6] = np.array([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]]) / (4 * w)
    return rows


def check_store(store, rows, expected):
    """Rows of the store add up to the headings of the walk at the frames that were kept."""
    clip = store[0]
    heading = np.cumsum(rows[:, YAW])
    record = next(record for record in manifest.read(store.path) if record.index == 0)
    numbers = np.round(np.arange(len(clip.frames)) * RATE / 8.75).astype(int)
    assert (record.first_frame, record.last_frame) == (0, numbers[-1])
    assert np.allclose(np.cumsum(clip.actions[:, YAW]), heading[numbers] - heading[0], atol=0.1)
    moved = np.array([rows[a + 1 : b + 1, LONGITUDINAL].all() for a, b in zip(numbers, numbers[1:], strict=False)])
    assert (clip.actions[1:][moved, LONGITUDINAL] == 1).all()
    still = np.array([not rows[a + 1 : b + 1, LONGITUDINAL].any() for a, b in zip(numbers, numbers[1:], strict=False)])
    assert (clip.actions[1:][still, LONGITUDINAL] == 0).all() and still.any() and moved.any()
    assert clip.caption_at(0) == expected and clip.frames.shape[1:] == (32, 32, 3)


def train_one_step(store, run):
    world = World.random(TINY)
    settings = replace(TINY.curriculum.navigation, batch=2, frames=6)
    stage = NavigationStage(world, LatentStore(store, world.codec, TINY), settings)
    before = {name: value.clone() for name, value in stage.weights().items()}
    assert train(stage, run, settings, Budget(steps=1), to_json(TINY), "cpu").step == 1
    assert any(not value.equal(before[name]) for name, value in stage.weights().items())


def write_sekai(place, film, rows, cameras):
    headings = np.cumsum(rows[:, YAW])
    table = [("walk_0000000_0000080", headings), ("pieces", headings), ("still", headings * 0), ("absent", None)]
    columns = ["videoFile", "cameraFile", "location", "scene", "crowdDensity", "weather", "timeOfDay", "caption"]
    (place / "train").mkdir(parents=True)
    with open(place / "train" / "sekai-real-walking-hq.csv", "w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(columns)
        for name, seen in table:
            about = ["Kyoto, Japan", "old town", "low", "sunny", "unknown", "A lane between wooden houses."]
            writer.writerow([f"{name}.mp4", f"{name}.npz", *about])
            if seen is not None:
                film(place / "clips" / f"{name}.mp4", seen, RATE)
    (place / "cameras" / "pieces").mkdir(parents=True)
    intrinsic = np.array([[0.9, 0, 0.5], [0, 1.6, 0.5], [0, 0, 1]])
    np.savez(place / "cameras" / "walk_0000000_0000080.npz", intrinsic=intrinsic, extrinsic=cameras)
    np.savez(place / "cameras" / "still.npz", intrinsic=intrinsic, extrinsic=cameras[:1].repeat(LENGTH, 0))
    for start, end in ((0, 50), (40, LENGTH)):
        own = inverse(cameras[start : start + 1]) @ cameras[start:end]  # each piece starts in a world of its own
        np.savez(place / "cameras" / "pieces" / f"{start:07d}_{end:07d}.npz", intrinsic=intrinsic, extrinsic=own)


def test_sekai(tmp_path, film, cameras):
    write_sekai(tmp_path / "set", film, *cameras)
    store, outcome = convert(sekai.read(tmp_path / "set"), tmp_path / "store", SMALL)
    assert (outcome.kept, outcome.refused, outcome.absent) == (2, 1, 1)
    check_store(store, cameras[0], StructuredCaption("A lane between wooden houses, old town, Kyoto, Japan, sunny"))
    assert np.allclose(store[0].actions, store[1].actions, atol=1e-3)  # stitched from pieces or not
    records = {record.name: record for record in manifest.read(store.path)}
    assert "hardly anything is done" in records["still"].refused[0]
    assert records["absent"].refused == ("the video is not there",)
    assert "non-commercial" in records["pieces"].licence and records["pieces"].source.startswith("Sekai")
    store.verify()
    train_one_step(store, tmp_path / "run")


def write_table(place, *rows):
    place.mkdir(parents=True, exist_ok=True)
    text = "\n".join([",".join(row) for row in (("videoFile", "cameraFile", "caption"), *rows)])
    (place / "clips.csv").write_text(text)


def test_sekai_files_of_the_same_name_are_told_apart_by_their_folders(tmp_path):
    for part in "ab":
        (tmp_path / part).mkdir()
        for name in ("clip.mp4", "clip.npz", f"only-{part}.mp4"):
            (tmp_path / part / name).touch()
    told = [(f"{part}/clip.mp4", f"{part}/clip.npz", f"Street {part}") for part in "ab"]
    write_table(tmp_path, *told, ("elsewhere/only-a.mp4", "", "Street"))
    clips = list(sekai.read(tmp_path))
    assert [clip.video for clip in clips] == [
        tmp_path / "a/clip.mp4",
        tmp_path / "b/clip.mp4",
        tmp_path / "a/only-a.mp4",
    ]
    assert [clip.name for clip in clips[:2]] == ["a/clip", "b/clip"]
    write_table(tmp_path, ("clip.mp4", "clip.npz", "Street"))
    with pytest.raises(ValueError, match="clip.npz may be one of 2 files .*say in the table which"):
        list(sekai.read(tmp_path))


@pytest.mark.parametrize("spoil", [b"videoFile,caption\na.mp4,\xff\n", b"videoFile,caption\na.mp4," + b"x" * 2**18])
def test_a_damaged_table_is_named(tmp_path, spoil):
    (tmp_path / "clips.csv").write_bytes(spoil)
    with pytest.raises(ValueError, match="clips.csv is no table in UTF-8"):
        list(sekai.read(tmp_path))


def test_spatialvid(tmp_path, film, cameras):
    rows, matrices = cameras
    place = tmp_path / "set" / "annotations" / "group_0001" / "0a00"
    place.mkdir(parents=True)
    film(tmp_path / "set" / "videos" / "group_0001" / "0a00.mp4", np.cumsum(rows[:, YAW]), RATE)
    every = np.arange(0, LENGTH, 1)
    np.save(place / "poses.npy", quaternions(inverse(matrices[every])))
    np.save(place / "intrinsics.npy", np.tile([0.9, 1.6, 0.5, 0.5], (len(every), 1)))
    (place / "indexes.txt").write_text("".join(f"{k} {frame}\n" for k, frame in enumerate(every)))
    caption = {"SceneSummary": "A bright kitchen.", "OptCamMotion": "The camera moves forward."}
    caption["CategoryTag"] = {"sceneType": {"first": "Interior"}, "weather": "Unknown", "timeOfDay": "Daytime"}
    (place / "caption.json").write_text(json.dumps(caption))
    store, outcome = convert(spatialvid.read(tmp_path / "set"), tmp_path / "store", SMALL)
    assert outcome.kept == 1
    check_store(store, rows, StructuredCaption("A bright kitchen, Daytime"))
    assert store[0].licence == "CC-BY-NC-SA-4.0" and store[0].meta == {"group": "group_0001"}
    train_one_step(store, tmp_path / "run")


def test_spatialvid_poses_of_some_frames(tmp_path, cameras):
    clip_frames = np.arange(0, LENGTH, 4)
    np.save(tmp_path / "poses.npy", quaternions(inverse(cameras[1][clip_frames])))
    facts = type("Facts", (), {"frames": 77, "frame_rate": RATE})
    spread = spatialvid.read_poses(tmp_path, True, facts)
    assert np.array_equal(spread.frames, clip_frames) and np.allclose(spread.cameras, cameras[1][clip_frames])
    (tmp_path / "indexes.txt").write_text("\n".join(str(frame) for frame in np.delete(np.arange(0, 84, 4), 5)))
    with pytest.raises(PoseError, match=r"poses\.npy, frame 16: poses are missing from here up to frame 24"):
        spatialvid.read_poses(tmp_path, True, facts)
    (tmp_path / "indexes.txt").write_bytes(b"1\n\xff\n")
    with pytest.raises(PoseError, match="indexes.txt: it is no text in UTF-8"):
        spatialvid.read_poses(tmp_path, True, facts)


def test_a_folder_of_videos(tmp_path, film, cameras):
    rows, matrices = cameras
    place = tmp_path / "set"
    for name in ("a", "sub/b", "sub/c"):
        film(place / f"{name}.mp4", np.cumsum(rows[:, YAW]), RATE)
        events = [{"scene": "a hall of stripes"}, {"start": 2, "event": "rain begins."}]
        (place / f"{name}.json").write_text(json.dumps(events))
    np.savez(place / "a.npz", world_to_camera=inverse(matrices)[:, :3])
    lines = np.column_stack([np.arange(LENGTH) / RATE, quaternions(matrices)])
    np.savetxt(place / "sub" / "b.txt", lines, header="seconds tx ty tz qx qy qz qw")
    (place / "sub" / "c.poses").mkdir()
    for start, end in ((0, 45), (35, LENGTH)):
        piece = {"camera_to_world": matrices[start:end], "frames": np.arange(start, end)}
        np.savez(place / "sub" / "c.poses" / f"{start}.npz", **piece)
    store, outcome = convert(folder.read(place, "CC0"), tmp_path / "store", SMALL)
    assert outcome.kept == len(store) == 3
    check_store(store, rows, StructuredCaption("a hall of stripes"))
    for index in range(3):
        assert np.allclose(store[index].actions, store[0].actions, atol=1e-3)
        assert store[index].captions[1] == (18, StructuredCaption("a hall of stripes", event="rain begins"))
    assert store[1].source == "folder set: sub/b" and store[1].licence == "CC0"
    train_one_step(store, tmp_path / "run")
