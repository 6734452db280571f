"""``record doom``: reproducible, resumable, and hard to bring down."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from world_model.controls import NOTHING
from world_model.data.store import MANIFEST

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
        ({"play": "chess"}, "everything, revisits, mirror, tasks"),
        ({"play": "mirror", "split": "freedoom"}, "choose another split"),
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


def test_going_on_keeps_what_is_whole_and_records_the_rest(recorded, tmp_path, monkeypatch):
    from world_model.data.doom.record import record

    record(tmp_path, clips=10, frames=FRAMES, seed=5, progress=False)
    begun = []
    on_message(monkeypatch, lambda worker: begun.append(worker.clip))
    kept = (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns
    record(tmp_path, clips=CLIPS, frames=FRAMES, seed=5, progress=False)
    assert checksums(tmp_path) == checksums(recorded.path)
    assert (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns == kept
    assert begun == list(range(10, CLIPS))


def test_another_recording_in_the_folder_is_not_overwritten(recorded):
    from world_model.data.doom.record import record

    with pytest.raises(ValueError, match="choose another folder"):
        record(recorded.path, clips=CLIPS, frames=FRAMES, seed=6, progress=False)
    with pytest.raises(ValueError, match="choose another folder"):
        record(recorded.path, clips=CLIPS, frames=FRAMES, seed=5, play="revisits", progress=False)


def test_other_play_is_recorded_and_continued(tmp_path):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    options = {"frames": 25, "play": "mirror", "progress": False}
    first = checksums(record(tmp_path / "a", clips=4, **options).path)
    assert checksums(record(tmp_path / "a", clips=4, **options).path) == first
    store = record(tmp_path / "a", clips=6, **options)
    assert len(store) == 6 and checksums(record(tmp_path / "b", clips=6, **options).path) == checksums(store.path)
    assert {store[k].meta["policy"] for k in range(6)} == {"Mirror"}


def test_a_clip_depends_on_its_index_alone(recorded):
    from world_model.data.doom.recipe import Recipe
    from world_model.data.doom.studio import open_studio

    with open_studio(Recipe(5, "train", FRAMES, 64), [17, 9]) as studio:
        for index in (17, 9):
            np.testing.assert_array_equal(studio.record(index).frames, recorded[index].frames)


def on_message(monkeypatch, react) -> None:
    """Call ``react(worker)`` after every message of a child that has a clip in hand."""
    from world_model.data.doom.record import Recording

    listen = Recording.listen

    def listen_and_react(self, worker):
        going_on = listen(self, worker)
        if worker.clip is not None:
            react(worker)
        return going_on

    monkeypatch.setattr(Recording, "listen", listen_and_react)


@pytest.mark.parametrize(
    "victim, cause", [("engine", "the Doom engine stopped"), ("recorder", "its process ended with code -9")]
)
def test_a_crash_costs_nothing_but_the_time_of_the_clip_in_hand(recorded, tmp_path, monkeypatch, capfd, victim, cause):
    from world_model.data.doom.record import record

    engines = []

    def kill_once(worker):
        if worker.clip == 3 and not engines:
            engines.extend(engines_of(worker.process.pid))
            os.kill(engines[0] if victim == "engine" else worker.process.pid, signal.SIGKILL)

    on_message(monkeypatch, kill_once)
    store = record(tmp_path, clips=CLIPS, frames=FRAMES, seed=5, progress=False)
    assert len(engines) == 1 and not is_engine(engines[0])
    assert f"was broken off because {cause}; it is recorded again" in "".join(capfd.readouterr())
    assert len(store) == CLIPS and checksums(tmp_path) == checksums(recorded.path)


def test_a_clip_that_crashes_every_time_is_lost_by_name_until_the_next_call(tmp_path, monkeypatch, capfd):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    usual = {"clips": 3, "frames": 1000, "seed": 5, "progress": False}  # long ones: the kill must come in time
    with monkeypatch.context() as patch:
        on_message(patch, lambda worker: worker.clip == 1 and worker.process.kill())
        store = record(tmp_path / "crashing", **usual)
    assert [store[k].meta["clip"] for k in range(len(store))] == [0, 2]
    assert "Clip 1 is lost because its process ended with code -9" in "".join(capfd.readouterr())
    begun = []
    with monkeypatch.context() as patch:
        on_message(patch, lambda worker: begun.append(worker.clip))
        record(tmp_path / "crashing", **usual)
    record(tmp_path / "whole", **usual)
    assert begun == [1] and checksums(tmp_path / "crashing") == checksums(tmp_path / "whole")


def test_an_engine_that_never_works_is_an_error(tmp_path, monkeypatch):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    on_message(monkeypatch, lambda worker: worker.process.kill())
    with pytest.raises(RuntimeError, match="recorders in a row died"):
        record(tmp_path, clips=4, frames=1000, progress=False)


def test_a_recorder_that_hangs_is_replaced(recorded, tmp_path, monkeypatch, capfd):
    from world_model.data.doom import record as module

    stopped = []

    def stop_once(worker):
        if worker.clip == 3 and not stopped:
            stopped.append(worker.process.pid)
            os.kill(worker.process.pid, signal.SIGSTOP)
            worker.heard -= 10 * module.SILENCE

    on_message(monkeypatch, stop_once)
    module.record(tmp_path, clips=CLIPS, frames=FRAMES, seed=5, progress=False)
    assert stopped and "nothing was heard of its process" in "".join(capfd.readouterr())
    assert checksums(tmp_path) == checksums(recorded.path)


def test_killing_the_command_ends_its_children_and_the_next_call_completes(tmp_path):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    options = {"clips": 12, "frames": 500, "seed": 5}
    command = [sys.executable, "-m", "world_model.data.doom.record", "--no-progress", "--out", str(tmp_path / "killed")]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    parts, engines = tmp_path / "killed" / ".shard-00000", []
    wait_until(lambda: (parts / "0000001").exists())
    for child in children_of(parent.pid):
        engines += [process for process in children_of(child) if is_engine(process)]
    parent.kill()
    assert "Traceback" not in parent.communicate()[1]
    assert engines
    wait_until(lambda: not any(is_engine(engine) for engine in engines))
    kept = (parts / "0000001").stat().st_mtime_ns
    assert kept and not (tmp_path / "killed" / "shard-00000.safetensors").exists()
    record(tmp_path / "killed", progress=False, **options)
    record(tmp_path / "whole", progress=False, **options)
    assert checksums(tmp_path / "killed") == checksums(tmp_path / "whole") and not parts.exists()


def test_a_full_disk_is_told_in_one_sentence(tmp_path):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    import resource

    command = [sys.executable, "-m", "world_model.data.doom.record", "--no-progress", "--out", str(tmp_path)]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # noqa: E731
    ended = subprocess.run([*command, "--clips", "4"], preexec_fn=limit, capture_output=True, text=True)
    assert ended.returncode and "File too large" in ended.stderr and "Traceback" not in ended.stderr


def test_a_half_written_clip_is_recorded_again(recorded, tmp_path):
    from world_model.data.doom.record import record

    parts = tmp_path / ".shard-00000"
    parts.mkdir()
    (parts / "0000002").write_bytes(b"half a clip")
    record(tmp_path, clips=CLIPS, frames=FRAMES, seed=5, progress=False)
    assert checksums(tmp_path) == checksums(recorded.path)


def wait_until(holds, seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def is_engine(process: int) -> bool:
    """Whether a process runs and is a Doom engine."""
    command = Path(f"/proc/{process}/cmdline")
    return command.exists() and "vizdoom" in command.read_text()


def children_of(process: int) -> list[int]:
    """The processes that a process has started."""
    listed = [file.read_text().split() for file in Path(f"/proc/{process}/task").glob("*/children")]
    return [int(child) for children in listed for child in children]


engines_of = children_of  # a recorder starts nothing else


def test_freedoom_is_recorded_too(tmp_path):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    stores = [
        record(tmp_path / str(workers), clips=6, frames=12, split="freedoom", workers=workers, progress=False)
        for workers in (1, 2)
    ]
    assert len(stores[0]) == 6 and checksums(tmp_path / "1") == checksums(tmp_path / "2")
    assert all("Freedoom" in stores[0][k].captions[0][1].scene for k in range(6))
    assert len({stores[0][k].meta["map"] for k in range(6)}) > 1


def test_large_frames_are_recorded_too(tmp_path):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    from world_model.data.doom.record import record

    store = record(tmp_path, clips=2, frames=12, size=128, progress=False)
    assert store[1].frames.shape == (12, 128, 128, 3) and store[1].frames.std() > 10


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--clips", "0"], "clips is 0"),
        (["--clips", "4", "--size", "5"], "size is 5"),
        (["--clips", "4", "--seed", "-1"], "seed is -1"),
        (["--clips", "4", "--workers", "0"], "workers is 0"),
        (["--clips", "4", "--out", "/dev/null"], "/dev/null cannot be made a folder"),
    ],
)
def test_bad_options_end_in_one_sentence(tmp_path, words, sentence):
    from world_model.data.doom.record import add_arguments, main

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit) as end:
        main(parser.parse_args(["--out", str(tmp_path), *words]))
    assert sentence in end.value.code and "\n" not in end.value.code
