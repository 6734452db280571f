"""A run that is killed at any moment, ten times, ends as the run that was left alone, bit for bit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
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
STEPS = 12
CURRICULUM_STEPS = 3
NEVER = 10**9


@pytest.fixture(scope="module")
def train(stripes, hasty_world):
    """Runs the command in a child that dies at a moment of its life; gives what became of it."""
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
        words = [*what, "--data", str(stripes.path), "--out", str(out), "--start", str(hasty_world), "--device", "cpu"]
        server.stdin.write(json.dumps({"words": words, "moment": moment}) + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())

    yield run
    server.stdin.close()
    assert server.wait() == 0


def assert_whole(run: Path) -> None:
    """Every checkpoint that exists can be loaded."""
    for path in checkpointing.checkpoints(run):
        checkpointing.load(path, [])
        for file in path.glob("*.safetensors"):
            load_file(file)


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
        assert all(torch.equal(left[name], right[name]) for name in left), first.name
    losses = [[(entry["step"], entry["loss"]) for entry in read_losses(run)] for run in (one, two)]
    assert losses[0] == losses[1] and losses[0]


def kill_ten_times(train, out: Path, what: list[str], moments: int, runs: list[Path]) -> None:
    """Continue and kill a run at random moments, so early that it cannot end before the last kill; then let it end."""
    generator = random.Random(f"{what} {moments}")
    for _ in range(KILLS):
        assert train(out, what, generator.randint(1, moments // KILLS))["killed"]
        for run in runs:
            assert_whole(run)
    assert not train(out, what)["killed"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_is_killed_ten_times_ends_as_if_it_had_not_been(train, tmp_path, stage):
    what = ["--stage", stage, "--steps", str(STEPS)]
    undisturbed = train(tmp_path / "undisturbed", what)
    kill_ten_times(train, tmp_path / "killed", what, undisturbed["moments"], [tmp_path / "killed"])
    assert_same(tmp_path / "undisturbed", tmp_path / "killed")


def test_a_curriculum_that_is_killed_ten_times_ends_as_if_it_had_not_been(train, tmp_path):
    what = ["--curriculum", "--first", "codec", "--steps", *(f"{stage}={CURRICULUM_STEPS}" for stage in ORDER)]
    undisturbed = train(tmp_path / "undisturbed", what)
    runs = [tmp_path / "killed" / stage for stage in ORDER]
    kill_ten_times(train, tmp_path / "killed", what, undisturbed["moments"], runs)
    for stage in ORDER:
        assert_same(tmp_path / "undisturbed" / stage, tmp_path / "killed" / stage)


def test_every_stage_of_the_curriculum_is_in_the_table_of_minutes():
    assert set(ORDER) == set(STAGES) - {"decoder"} <= set(CURRICULUM_MINUTES)
