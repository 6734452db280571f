"""``wp2 record world``: what it prints and writes, and what it refuses, each in one sentence."""

from __future__ import annotations

import errno
import os
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest

from agents import policies
from agents.policies.simple import Random
from agents.record import FORMATS, parts
from agents.record.recording import WRITERS
from world_model.checkpoint import save_world
from world_model.config import TINY, VideoConfig
from world_model.data.store import ClipStore
from world_model.world import World
from wp2env.starts import BANK_FILE, StartBank, read_bank


@pytest.fixture
def record(wp2, folder, tmp_path):
    """Runs ``wp2 record world`` in the tiny world: 3 episodes of 3 steps, 2 at a time."""
    few = ("--episodes", 3, "--envs", 2, "--steps", 3, "--no-progress")
    return lambda *words, world=folder: wp2(
        "record", "world", "--world", world, *few, "--out", tmp_path / "walks-v0", *words
    )


def test_it_records_says_so_and_does_it_once(record, tmp_path):
    out = tmp_path / "walks-v0"
    assert record("--seed", 5, "--licence", "CC0").out == f"3 episodes in {out}\n"
    written = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert record("--seed", 5, "--licence", "CC0").out == f"3 episodes in {out}\n"
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == written
    clips = list(ClipStore(out))
    assert [len(clip.frames) for clip in clips] == [4, 4, 4] and clips[0].licence == "CC0"
    assert "holds a recording with {'seed': 5}, not {'seed': 6}" in record("--seed", 6, "--licence", "CC0").error


@pytest.fixture
def interruptible():
    """SIGINT interrupts, also where these tests run in the background of a shell, which ignores it there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_one_line_and_the_same_command_goes_on(record, monkeypatch, interruptible):
    class Interrupted(Random):
        acts = 0

        def act(self, observations):
            Interrupted.acts += 1
            if Interrupted.acts == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return super().act(observations)

    with monkeypatch.context() as patch:
        patch.setattr(policies, "load_policy", lambda text, num_envs, seed: Interrupted(num_envs, seed))
        answer = record()
    assert answer.code == 130
    assert answer.err == (
        "wp2 record world: interrupted; 2 of 3 episodes are done, and the same command goes on from there\n"
    )
    assert record().code == 0


def test_a_full_disk_is_one_sentence_with_file_and_remedy(record, monkeypatch, tmp_path):
    def full(path, clips):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(parts, "save_clips", full)
        error = record().error
    part = tmp_path / "walks-v0" / ".parts" / "0000000.clip"
    assert f"writing to {part} failed (No space left on device); free or mend the disk" in error
    assert "0 of 3 episodes are done" in error
    assert record().code == 0


def test_a_policy_of_the_wrong_shape_is_one_sentence_and_spoils_nothing(record, wp2, folder, tmp_path):
    few = ("--task", "explore", "--envs", 2, "--episode-steps", 4, "--world", folder, "--algo", "a2c", "--steps", 16)
    assert wp2("train-agent", *few, "--out", tmp_path / "agent").code == 0
    wide = replace(
        TINY, name="wide", video=VideoConfig(height=96, width=96), transformer=replace(TINY.transformer, patch=2)
    )
    save_world(World.random(wide, seed=0), tmp_path / "wide")
    bank = read_bank(folder / BANK_FILE)
    frames = np.zeros((2, 1, 96, 96, 3), np.uint8)
    StartBank(frames, bank.captions, bank.perspectives).save(tmp_path / "wide" / BANK_FILE)
    error = record("--policy", tmp_path / "agent", world=tmp_path / "wide").error
    assert "[2, 96, 96, 3]" in error and "[2, 64, 64, 3]" in error
    assert record("--policy", "random", world=tmp_path / "wide").code == 0


def test_a_damaged_policy_file_is_one_sentence(record, tmp_path):
    (tmp_path / "agent.zip").write_bytes(b"no policy")
    assert str(tmp_path) in record("--policy", tmp_path / "agent.zip").error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--policy", "genius"], "there is no policy 'genius'"),
        (["--task", "fly"], "the task 'fly' is not known"),
        (["--starts", "gone"], "there is no file 'gone'"),
        (["--world", "nowhere"], "there is no world 'nowhere'"),
        (["--workers", "2"], "2 workers need Ray; add --ray"),
        (["--format", "tape"], "'tape'"),
        (["--envs", "0"], "from 1 to"),
    ],
)
def test_what_does_not_fit_is_one_sentence(record, words, named):
    assert named in record(*words).error


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("h5py", ["--format", "minari"], "data"),
        ("pyarrow", ["--format", "lerobot"], "data"),
        ("ray", ["--ray"], "distributed"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(record, monkeypatch, package, words, extra):
    monkeypatch.setitem(sys.modules, package, None)
    assert f"worldplay2-gym[{extra}]" in record(*words).error


def test_the_formats_of_the_command_are_those_that_can_be_written():
    assert tuple(WRITERS) == FORMATS
