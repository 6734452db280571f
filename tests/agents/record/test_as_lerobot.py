"""A recording for LeRobot opens in LeRobot's reader, where that is installed, and in any reader of its tables."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest

from world_model.data.store import ClipStore

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def tables(plan, tmp_path_factory):
    """The recording, in the form of LeRobot."""
    from agents.record.recording import record

    out = tmp_path_factory.mktemp("lerobot") / "walks-v0"
    record(plan(task="short"), out, episodes=5, form="lerobot")
    return out


def test_a_row_is_a_frame_with_the_action_that_followed(tables, undisturbed):
    rows = pq.read_table(tables / "data" / "chunk-000" / "file-000.parquet").to_pylist()
    texts = dict_of_tasks(tables)
    index = 0
    for number, clip in enumerate(ClipStore(undisturbed)):
        for step in range(len(clip.frames) - 1):
            row, last = rows[index], step == len(clip.frames) - 2
            assert (row["index"], row["episode_index"], row["frame_index"]) == (index, number, step)
            picture = cv2.imdecode(np.frombuffer(row["observation.image"]["bytes"], np.uint8), cv2.IMREAD_COLOR)
            np.testing.assert_array_equal(picture[..., ::-1], clip.frames[step])
            assert row["action"] == clip.actions[step + 1].tolist()
            assert row["next.reward"] == clip.rewards["short"][step + 1]
            assert row["next.done"] is last and row["next.success"] is (last and clip.meta["success"])
            assert row["timestamp"] == pytest.approx(step / 9)
            assert texts[row["task_index"]] == clip.caption_at(step).text()
            index += 1
    assert index == len(rows)


def dict_of_tasks(out):
    table = pq.read_table(out / "meta" / "tasks.parquet").to_pydict()
    return dict(zip(table["task_index"], table["__index_level_0__"], strict=True))


def test_the_description_fits_the_rows(tables):
    info = json.loads((tables / "meta" / "info.json").read_text())
    rows = pq.read_table(tables / "data" / "chunk-000" / "file-000.parquet")
    episodes = pq.read_table(tables / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()
    assert info["codebase_version"] == "v3.0" and info["total_episodes"] == 5 == len(episodes)
    assert info["total_frames"] == len(rows) and set(info["features"]) == set(rows.column_names)
    assert info["total_tasks"] == len(dict_of_tasks(tables))
    assert [one["dataset_from_index"] for one in episodes[1:]] == [one["dataset_to_index"] for one in episodes[:-1]]
    assert sum(one["length"] for one in episodes) == len(rows)
    assert json.loads((tables / "meta" / "provenance.json").read_text())["policy"] == "random"


def test_lerobot_opens_it(tables, undisturbed, monkeypatch, tmp_path):
    pytest.importorskip("lerobot")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset, store = LeRobotDataset("worldplay2/walks", root=tables), ClipStore(undisturbed)
    assert dataset.num_episodes == 5 and dataset.fps == 9
    assert len(dataset) == sum(len(clip.frames) - 1 for clip in store)
    index = 0
    for clip in store:
        for step in range(len(clip.frames) - 1):
            item = dataset[index]
            np.testing.assert_array_equal(
                (item["observation.image"] * 255).round().byte().numpy().transpose(1, 2, 0), clip.frames[step]
            )
            np.testing.assert_array_equal(item["action"].numpy(), clip.actions[step + 1])
            assert item["task"] == clip.caption_at(step).text()
            index += 1
    assert dataset.meta.stats["observation.image"]["mean"].shape == (3, 1, 1)


def test_lerobot_gives_windows_of_time(tables, monkeypatch, tmp_path):
    pytest.importorskip("lerobot")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    times = {"action": [-1 / 9, 0, 1 / 9]}
    item = LeRobotDataset("worldplay2/walks", root=tables, delta_timestamps=times)[1]
    assert item["action"].shape == (3, 6)
