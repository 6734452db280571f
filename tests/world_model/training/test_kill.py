"""A run that is killed at any moment, ten times, ends as the run that was left alone, bit for bit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from world_model.config import CURRICULUM_MINUTES
from world_model.training import checkpointing
from world_model.training.curriculum import ORDER
from world_model.training.losses import read_losses
from world_model.training.stages import STAGES

ROOT = Path(__file__).parents[3]
SERVER = Path(__file__).parent / "mortal.py"
KILLS = 10
LIVES = 6  # of the longest kind make a run that is left alone; ten of random length do not, as each repeats something
STEPS = 16
CURRICULUM_STEPS = 3
VARIANTS = {"few_step_data_free", "truncated_forcing", "full_context_forcing"}  # draw and keep what their stages do
NEVER = 10**9


@pytest.fixture(scope="module")
def train(stripes, hasty_world):
    """Runs the command, or writes a checkpoint without one, in a child that dies at a moment of its life; gives what
    became of it."""
    server = subprocess.Popen(
        [sys.executable, SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )

    def run(out: Path, what: list[str], moment: int = NEVER) -> dict:
        common = ["--data", str(stripes.path), "--start", str(hasty_world), "--device", "cpu"]
        if "stable_forcing" in what:
            common += ["--teacher", str(hasty_world)]
        order = {"words": what and [*what, *common], "folder": str(out), "moment": moment}
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())

    yield run
    server.stdin.close()
    assert server.wait() == 0


def assert_whole(run: Path, undisturbed: Path) -> None:
    """Every checkpoint that exists has all files and can be loaded."""
    files = sorted(path.name for path in checkpointing.checkpoints(undisturbed)[-1].iterdir())
    for path in checkpointing.checkpoints(run):
        assert sorted(file.name for file in path.iterdir()) == files
        checkpointing.load(path, {}, {}, [])
        for file in path.glob("*.safetensors"):
            load_file(file)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes: what is not a number, too, is the same or not."""
    return tensor.flatten().view(torch.uint8)


def assert_same(one: Path, two: Path) -> None:
    """Two runs ended in the same state and logged the same losses."""
    newest = [checkpointing.checkpoints(run)[-1] for run in (one, two)]
    assert newest[0].name == newest[1].name
    files = [*(path.relative_to(newest[0]) for path in newest[0].glob("*.safetensors"))]
    pairs = [(newest[0] / file, newest[1] / file) for file in files]
    pairs.append((one / "world" / "world.safetensors", two / "world" / "world.safetensors"))
    assert len(pairs) >= 4
    for first, second in pairs:
        left, right = load_file(first), load_file(second)
        assert left.keys() == right.keys()
        assert all(torch.equal(bits(left[name]), bits(right[name])) for name in left), first.name
    losses = [[(entry["step"], entry["loss"]) for entry in read_losses(run)] for run in (one, two)]
    assert losses[0] == losses[1] and losses[0]
    best = [[path.name for path in checkpointing.checkpoints(run / checkpointing.BEST)] for run in (one, two)]
    assert best[0] == best[1]


def train_undisturbed_and_killed(train, folder: Path, what: list[str], stages: Sequence[str]) -> None:
    """Train twice: left alone, and killed at ten random moments.

    ``stages`` are the run folders inside those of the two.
    """
    one, two = folder / "undisturbed", folder / "killed"
    moments = train(one, what)["moments"]
    generator = random.Random(f"{what} {moments}")
    for _ in range(KILLS):
        assert train(two, what, generator.randint(1, moments // LIVES))["killed"]
        for stage in stages:
            assert_whole(two / stage, one / stage)
    assert not train(two, what)["killed"]
    for stage in stages:
        assert_same(one / stage, two / stage)


def test_a_kill_at_any_moment_of_a_checkpoint_leaves_whole_ones(train, tmp_path):
    train(tmp_path / "whole", [])
    for moment in count(1):
        run = tmp_path / f"killed-{moment}"
        for _ in range(checkpointing.KEPT):
            train(run, [])
        killed = train(run, [], moment)["killed"]
        assert_whole(run, tmp_path / "whole")
        assert checkpointing.progress_of(run).step >= checkpointing.KEPT
        if not killed:
            break
    assert moment > 15


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in VARIANTS])
def test_a_stage_that_is_killed_ten_times_ends_as_if_it_had_not_been(train, tmp_path, stage):
    train_undisturbed_and_killed(train, tmp_path, ["--stage", stage, "--steps", str(STEPS)], [""])
    assert checkpointing.progress_of(tmp_path / "killed").step == STEPS  # it did not stop itself


def test_a_curriculum_that_is_killed_ten_times_ends_as_if_it_had_not_been(train, tmp_path):
    steps = [f"{stage}={CURRICULUM_STEPS}" for stage in ORDER]
    train_undisturbed_and_killed(train, tmp_path, ["--curriculum", "--first", "codec", "--steps", *steps], ORDER)


def test_every_stage_of_the_curriculum_is_in_the_table_of_minutes():
    assert set(ORDER) == set(STAGES) - {"decoder", "full_context"} - VARIANTS == set(CURRICULUM_MINUTES)
