"""Two processes train as one does: every stage, from the command line, with the same result on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from world_model.checkpoint import load_world, save_world
from world_model.training import checkpointing
from world_model.training.loop import step_generator
from world_model.training.losses import read_losses
from world_model.training.stages import FORCING_STAGES, STAGES

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parent / "pair.py"
STEPS = 4
TOLERANCE = 2e-5
SHARE_APART = 0.01  # of how far a run has moved, as lengths of vectors: what rounding may make of it
SECONDS = 300  # for all stages; a pair that waits for each other is not waited for

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="torch has no gloo"
)


def train(launcher: list[str], commands: list[list[str]]) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [sys.executable, *launcher, SCRIPT, json.dumps(commands)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.fixture(scope="module")
def start(hasty_world, tmp_path_factory) -> Path:
    """A world no part of which is at its zero initialisation, where students equal their teachers."""
    world = load_world(hasty_world)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in world.named_parameters():
        if not name.startswith("codec."):  # the teacher's, too
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    folder = tmp_path_factory.mktemp("start")
    save_world(world, folder, torch.float32)
    return folder


@pytest.fixture(scope="module")
def runs(stripes, start, hasty_world, tmp_path_factory) -> dict[str, Path]:
    """The folders of all stages' runs, trained by one process and by two."""
    launchers = {"one": [], "two": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]}
    folders = {}
    for name, launcher in launchers.items():
        folders[name] = tmp_path_factory.mktemp(name)
        common = ["--data", str(stripes.path), "--start", str(start), "--device", "cpu", "--steps", str(STEPS)]
        commands = [["--stage", stage, "--out", str(folders[name] / stage), *common] for stage in STAGES]
        for words in commands:
            words += ["--teacher", str(hasty_world)] if words[1] in FORCING_STAGES else []
        done = train(launcher, commands)
        assert done.returncode == 0, done.stderr[-3000:]
    return folders


def begun(run: Path) -> dict[str, torch.Tensor]:
    """The weights that a run began with, named as in its checkpoints."""
    weights = load_file(run / "start" / "world.safetensors")
    teacher = run / "teacher" / "world.safetensors"
    return weights | ({f"fake.{name}": value for name, value in load_file(teacher).items()} if teacher.exists() else {})


@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_end_where_one_does(runs, stage):
    one, two = (runs[name] / stage for name in ("one", "two"))
    newest = [checkpointing.checkpoints(run)[-1] for run in (one, two)]
    assert newest[0].name == newest[1].name == f"step-{STEPS:08d}"
    losses = [read_losses(run)[-1] for run in (one, two)]
    assert losses[0].keys() == losses[1].keys() and losses[0]["loss"] > 0
    for name in losses[0].keys() - {"minutes", "direction"}:  # a root mean square, averaged over processes
        assert losses[1][name] == pytest.approx(losses[0][name], rel=TOLERANCE, abs=TOLERANCE), name
    before = begun(one)
    left, right = (load_file(path / "model.safetensors") for path in newest)
    assert left.keys() == right.keys()
    apart = moved = 0.0
    for name, value in left.items():
        torch.testing.assert_close(right[name], value, atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True, msg=name)
        if not name.startswith("watch."):
            apart += float((right[name] - value).square().sum())
            moved += float((value - before[name]).square().sum())
    assert moved > 0 and apart < SHARE_APART**2 * moved


def test_a_batch_that_does_not_split_is_answered_with_what_to_change(tiny_world, forcing):
    stage = forcing(tiny_world, batch=3)
    with pytest.raises(
        ValueError, match="a batch of 3 does not split among 2 processes; .* --set stable_forcing.batch"
    ):
        stage.share({}, 0, 2)


def test_shares_are_the_rows_of_the_batch_wherever_it_counts_them(tiny_world, forcing):
    stage = forcing(tiny_world)
    batch = stage.batch(step_generator(0, 0), 0)
    shares = [stage.share(batch, process, 2) for process in range(2)]
    assert stage.share(batch, 0, 1).keys() == batch.keys() == shares[0].keys()
    for name, value in batch.items():
        axis = stage.rows.get(name, 0 if value.ndim else None)
        parts = [share[name] for share in shares]
        assert (
            all(torch.equal(part, value) for part in parts)
            if axis is None
            else torch.equal(torch.cat(parts, axis), value)
        )
    assert shares[0]["levels"].shape == (stage._clips(0), 1) and len(shares[0]["exits"]) == len(batch["exits"])
