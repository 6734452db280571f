"""A recording goes on where it stopped, whatever stopped it, and ends as one that nothing disturbed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from agents.record import parts
from agents.record.parts import PARTS, RECORDING, Parts
from agents.record.play import Player
from agents.record.recording import Broken, record
from world_model.data.store import ClipStore

MORTAL = Path(__file__).parent / "mortal.py"


class Stopped(Player):
    """Plays the first episodes and then fails."""

    def __init__(self, plan, licence, after, error):
        super().__init__(plan, licence)
        self.after, self.error = after, error

    def play(self, waves):
        for count, episode in enumerate(super().play(waves)):
            if count == self.after:
                raise self.error
            yield episode


@pytest.fixture
def stopped(plan, tmp_path):
    """Records until an error after some episodes."""

    def run(after, error, **options):
        hire = lambda plan, licence: Stopped(plan, licence, after, error)  # noqa: E731
        record(plan(task="short"), tmp_path / "walks-v0", episodes=5, hire=hire, **options)

    return run


def test_a_finished_recording_is_a_store_and_nothing_else(undisturbed):
    out = undisturbed
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", RECORDING, "shard-00000.safetensors"]
    store = ClipStore(out)
    store.verify()
    assert [store[k].meta["episode"] for k in range(len(store))] == list(range(5))
    assert store.recipe["policy"] == "random" and store.recipe["episodes"] == 5 and "torch" in store.recipe["versions"]


@pytest.fixture
def complete(undisturbed, tmp_path) -> Path:
    """A finished recording to try things on, where `recorded` would put it."""
    return shutil.copytree(undisturbed, tmp_path / "walks-v0")


def test_the_same_call_again_changes_nothing_and_plays_nothing(complete, recorded, tree, monkeypatch):
    before = tree(complete)
    monkeypatch.setattr(Player, "play", None)
    assert tree(recorded()) == before


def test_episodes_do_not_depend_on_how_many_are_recorded(recorded, undisturbed):
    few, more = ClipStore(recorded("few", 3)), ClipStore(undisturbed)
    for number in range(3):
        np.testing.assert_array_equal(few[number].frames, more[number].frames)


@pytest.mark.parametrize("after", [0, 1, 3, 4])
def test_an_interrupt_says_what_is_done_and_the_same_call_goes_on(stopped, recorded, undisturbed, tree, after):
    with pytest.raises(KeyboardInterrupt, match=f"{after} of 5 episodes are done, and the same command goes on"):
        stopped(after, KeyboardInterrupt())
    assert tree(recorded()) == tree(undisturbed)


def test_a_full_disk_is_one_sentence_and_nothing_half_written_counts(recorded, undisturbed, tree, monkeypatch):
    save, written = parts.save_clips, []

    def full(path, clips):
        written.append(path)
        if len(written) == 3:
            path.with_name(path.name + ".tmp").write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(path, clips)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "save_clips", full)
        with pytest.raises(Broken, match=r"writing to .*000\d.clip failed \(No space left.*2 of 5 episodes are done"):
            recorded()
    assert tree(recorded()) == tree(undisturbed)


def test_a_disk_that_is_full_at_assembly_keeps_all_parts(recorded, undisturbed, tree, monkeypatch):
    def full(self):
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    with monkeypatch.context() as patch:
        patch.setattr("world_model.data.store.ShardWriter.close", full)
        with pytest.raises(Broken, match="No space left.*free or mend the disk: 5 of 5 episodes are done"):
            recorded()
    with monkeypatch.context() as patch:
        patch.setattr(Player, "play", None)  # nothing is left to be played
        out = recorded()
    assert tree(out) == tree(undisturbed)


@pytest.mark.parametrize("damage", [lambda part: b"", lambda part: b"no shard at all", lambda part: part[:-1]])
def test_a_damaged_part_is_played_again(stopped, recorded, undisturbed, tree, tmp_path, damage):
    with pytest.raises(KeyboardInterrupt):
        stopped(3, KeyboardInterrupt())
    part = min((tmp_path / "walks-v0" / PARTS).glob("*.clip"))
    part.write_bytes(damage(part.read_bytes()))
    assert tree(recorded()) == tree(undisturbed)


def test_killed_at_any_moment_it_ends_as_if_nothing_had_been(tmp_path, tree, folder):
    """Each life ends by SIGKILL at one more of its moments on disk than the one before, until one is long enough."""
    outs = [str(tmp_path / name) for name in ("mortal", "undisturbed")]
    answer = subprocess.run(
        [sys.executable, MORTAL, str(folder), *outs],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(MORTAL.parents[3])},
    )
    told = json.loads(answer.stdout)
    assert told["lives"] > 10 and told["counts"] == sorted(told["counts"]), "what is done stays done"
    assert told["counts"][0] == 0 and told["counts"][-1] == 3
    assert tree(Path(outs[0])) == tree(Path(outs[1]))
    assert [clip.meta["episode"] for clip in ClipStore(outs[0])] == list(range(3))


NEEDS_MINARI = pytest.mark.skipif(
    not (find_spec("minari") and find_spec("h5py")), reason="Minari and h5py are an optional extra"
)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, r"holds a recording with \{'seed': 0\}, not \{'seed': 1\}; choose another folder"),
        ({"policy": "idle"}, "'policy': 'random'.*'policy': 'idle'"),
        ({"episodes": 6}, "complete recording of 5 episodes, not 6; record more into another folder"),
        pytest.param({"form": "minari"}, "'format': 'clips'", marks=NEEDS_MINARI),
    ],
)
def test_another_recording_is_refused_and_left_alone(complete, recorded, tree, changes, told):
    before = tree(complete)
    with pytest.raises(ValueError, match=told):
        recorded(**changes)
    assert tree(complete) == before


def test_an_unfinished_recording_takes_another_number_of_episodes(stopped, recorded, tree):
    with pytest.raises(KeyboardInterrupt):
        stopped(3, KeyboardInterrupt())
    assert len(ClipStore(recorded(episodes=2))) == 2


def test_a_plan_that_never_worked_leaves_nothing_behind(recorded, tmp_path):
    with pytest.raises(ValueError, match="there is no policy 'gone.zip'"):
        recorded(policy="gone.zip")
    with pytest.raises(ValueError, match="task 'fly' is not known"):
        recorded(task="fly")
    assert not list(tmp_path.iterdir())


def test_folders_of_others_are_refused(recorded, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be made a folder, since a file is there"):
        recorded("file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("")
    with pytest.raises(ValueError, match="holds files that are no recording"):
        recorded("full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter"]


def test_two_processes_do_not_record_into_one_folder(plan, tmp_path, recorded):
    first = Parts(tmp_path / "walks-v0", plan().recipe(), 5)
    with pytest.raises(ValueError, match="another process records into"):
        recorded()
    first.close()
    recorded()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"recipe": 1}'])
def test_a_damaged_note_is_one_sentence(complete, recorded, content):
    (complete / RECORDING).write_text(content)
    with pytest.raises(ValueError, match="recording.json tells of no recording"):
        recorded()


@pytest.mark.parametrize(("episodes", "form", "told"), [(0, "clips", "episodes is 0"), (1, "tapes", "'tapes' is un")])
def test_impossible_wishes_are_refused(recorded, episodes, form, told):
    with pytest.raises(ValueError, match=told):
        recorded(episodes=episodes, form=form)
