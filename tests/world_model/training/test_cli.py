"""`wp2 train`: a run stays what it began as, and mistakes are told before anything is written."""

from __future__ import annotations

import argparse
import shutil

import pytest

from world_model.training import cli


@pytest.fixture
def train(stripes, tmp_path):
    def run(*words: str) -> None:
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        common = ("--data", str(stripes.path), "--out", str(tmp_path / "run"), "--preset", "tiny", "--device", "cpu")
        cli.main(parser.parse_args([*common, *words]))

    return run


def test_a_run_goes_on_as_what_it_is_and_as_nothing_else(train, tmp_path):
    train("--stage", "codec", "--steps", "2")
    train("--stage", "codec", "--steps", "3")
    assert [path.name for path in (tmp_path / "run").glob("step-*3")] == ["step-00000003"]
    with pytest.raises(ValueError, match="is a run with stage 'codec', not 'decoder'; continue it with what it began"):
        train("--stage", "decoder", "--steps", "4")
    with pytest.raises(ValueError, match="is a run with start 'random weights of tiny, seed 0', not"):
        train("--stage", "codec", "--steps", "4", "--seed", "1")


def test_a_run_that_has_begun_needs_its_start_no_more(train, tmp_path):
    train("--stage", "codec", "--steps", "2")
    onward = ("--stage", "decoder", "--start", str(tmp_path / "run"), "--out", str(tmp_path / "onward"))
    train(*onward, "--steps", "2")
    shutil.rmtree(tmp_path / "run")
    train(*onward, "--steps", "3")
    assert (tmp_path / "onward" / "step-00000003").is_dir()


def test_a_refused_run_leaves_nothing_behind(train, tmp_path):
    with pytest.raises(ValueError, match="pictures of 32x32"):
        train("--stage", "codec", "--steps", "1", "--preset", "doom")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "0"), "--steps is 0; give a number above 0"),
        (("--minutes", "nan"), "--minutes is nan; give a number above 0"),
        (("--steps", "1", "--device", "abacus"), "abacus"),
        ((), "give --steps, --minutes or both"),
    ],
)
def test_a_mistake_is_told_and_leaves_nothing_behind(train, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        train("--stage", "codec", *words)
    assert not (tmp_path / "run").exists()


def test_recordings_of_another_size_are_refused(train):
    with pytest.raises(ValueError, match="pictures of 32x32 and the world 'doom' makes 64x64; record with --size 64"):
        train("--stage", "codec", "--steps", "1", "--preset", "doom")
