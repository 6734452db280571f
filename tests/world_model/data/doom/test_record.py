"""``record doom``: reproducible, resumable, and hard to bring down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from world_model.controls import NOTHING
from world_model.data.store import MANIFEST, ClipStore

CLIPS, FRAMES = 20, 24


def checksums(folder) -> list[str]:
    return [shard["sha256"] for shard in json.loads((Path(folder) / MANIFEST).read_text())["shards"]]


def test_the_package_imports_without_the_engine():
    code = "import sys; sys.modules['vizdoom'] = None; import world_model.data.store, world_model.data.doom.record"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"clips": 0}, "clips is 0"),
        ({"frames": 1}, "frames is 1"),
        ({"split": "dev"}, "train"),
        ({"size": 4}, "size is 4"),
    ],
)
def test_impossible_numbers_are_refused(tmp_path, wrong, message):
    from world_model.data.doom.record import record

    with pytest.raises(ValueError, match=message):
        record(tmp_path, **{"clips": 4, "frames": 24, "progress": False} | wrong)


@pytest.fixture(scope="module")
def small_shards():
    """Eight clips to a shard."""
    from world_model.data.doom import job

    usual = job.SHARD_BYTES
    job.SHARD_BYTES = 8 * FRAMES * 64 * 64 * 3
    yield
    job.SHARD_BYTES = usual


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, small_shards):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    folder = tmp_path_factory.mktemp("one")
    return record(folder, clips=CLIPS, frames=FRAMES, seed=5, workers=1, progress=False)


def test_clips_are_whole(recorded):
    assert len(recorded) == CLIPS
    recorded.verify()
    for clip in (recorded[k] for k in range(CLIPS)):
        assert clip.frames.shape == (FRAMES, 64, 64, 3) and clip.actions.shape == (FRAMES, 6)
        assert not clip.actions[0, [0, 1, 2, 3, 5]].any()
        assert clip.frames[-1].mean() > 10 and clip.pose.shape == (FRAMES, 5)
        third_person = clip.actions[:, 4] == 0
        told = np.array([clip.caption_at(t).character != NOTHING for t in range(FRAMES)])
        np.testing.assert_array_equal(third_person, told)
        event, spoken = clip.meta["event"], [clip.caption_at(t).event for t in range(FRAMES)]
        if event:
            assert spoken[event["start"] - 1] == NOTHING and spoken[event["start"]] == event["caption"]
        else:
            assert set(spoken) == {NOTHING}
        for task, rewards in clip.rewards.items():
            assert rewards[0] == 0 and clip.terminated[task].sum() <= 1


def test_more_workers_record_the_same_bits(recorded, tmp_path):
    from world_model.data.doom.record import record

    record(tmp_path, clips=CLIPS, frames=FRAMES, seed=5, workers=2, progress=False)
    assert checksums(tmp_path) == checksums(recorded.path)


def test_going_on_keeps_what_is_whole_and_records_the_rest(recorded, tmp_path):
    from world_model.data.doom.record import record

    record(tmp_path, clips=10, frames=FRAMES, seed=5, progress=False)
    kept = (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns
    record(tmp_path, clips=CLIPS, frames=FRAMES, seed=5, progress=False)
    assert checksums(tmp_path) == checksums(recorded.path)
    assert (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns == kept


def test_another_recording_in_the_folder_is_not_overwritten(recorded):
    from world_model.data.doom.record import record

    with pytest.raises(ValueError, match="choose another folder"):
        record(recorded.path, clips=CLIPS, frames=FRAMES, seed=6, progress=False)


def test_a_clip_depends_on_its_index_alone(recorded):
    from world_model.data.doom.recipe import Recipe
    from world_model.data.doom.studio import open_studio

    with open_studio(Recipe(5, "train", FRAMES, 64), [17, 9]) as studio:
        for index in (17, 9):
            np.testing.assert_array_equal(studio.record(index).frames, recorded[index].frames)


@pytest.mark.parametrize(
    "victim, cause", [("engine", "the Doom engine stopped"), ("recorder", "its process ended with code -9")]
)
def test_a_crash_costs_the_clip_in_hand_and_leaves_no_engine(recorded, tmp_path, monkeypatch, capfd, victim, cause):
    from world_model.data.doom.record import Recording, record

    listen, engines = Recording.listen, []

    def listen_and_kill(self, worker):
        going_on = listen(self, worker)
        if worker.clip == 3 and not engines:
            engines.extend(engines_of(worker.process.pid))
            os.kill(engines[0] if victim == "engine" else worker.process.pid, signal.SIGKILL)
        return going_on

    monkeypatch.setattr(Recording, "listen", listen_and_kill)
    store = record(tmp_path, clips=CLIPS, frames=FRAMES, seed=5, progress=False)
    assert len(engines) == 1 and not is_engine(engines[0])
    indices = [store[k].meta["clip"] for k in range(len(store))]
    lost = set(range(CLIPS)) - set(indices)
    assert len(lost) == 1 and lost <= {3, 4}
    assert f"Clip {lost.pop()} is lost because {cause}; recording goes on" in "".join(capfd.readouterr())
    for k, index in enumerate(indices):
        np.testing.assert_array_equal(store[k].frames, recorded[index].frames)


def is_engine(process: int) -> bool:
    """Whether a process runs and is a Doom engine."""
    command = Path(f"/proc/{process}/cmdline")
    return command.exists() and "vizdoom" in command.read_text()


def engines_of(process: int) -> list[int]:
    """The engine processes that a recorder has started."""
    listed = [file.read_text().split() for file in Path(f"/proc/{process}/task").glob("*/children")]
    return [int(child) for children in listed for child in children]


def test_freedoom_is_recorded_too(tmp_path):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    store = record(tmp_path, clips=3, frames=12, split="freedoom", progress=False)
    assert len(store) == 3 and isinstance(ClipStore(tmp_path), ClipStore)
    assert all("Freedoom" in store[k].captions[0][1].scene for k in range(3))
