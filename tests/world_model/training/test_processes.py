"""Two processes train as one does: every stage, from the command line, with the same result on disk, whether each holds
all weights or they split them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
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
CONFIGURATIONS = ROOT / "world_model" / "training" / "accelerate"
ACCELERATE = [
    "-m",
    "accelerate.commands.launch",
    "--num_processes=2",
    "--num_cpu_threads_per_process=1",
    "--config_file",
]
LAUNCHERS = {
    "one": [],
    "two": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    "split": [*ACCELERATE, str(CONFIGURATIONS / "fsdp.yaml")],
}
STEPS, MORE_STEPS = 4, 6
CONTINUED = ("history", "stable_forcing")  # with Muon and without, and with several networks
NETWORKS = {"codec": 0, "decoder": 0} | {"few_step": 2, "few_step_data_free": 2} | dict.fromkeys(FORCING_STAGES, 3)
TOLERANCE = 2e-5
SHARE_APART = 0.01  # of how far a run has moved, as lengths of vectors: what rounding may make of it
SECONDS = 600  # for all stages; a pair that waits for each other is not waited for

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="torch has no gloo"
)


def train(launcher: str, commands: list[list[str]]) -> str:
    """What processes print that carry out commands of `wp2 train doom`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *LAUNCHERS[launcher], SCRIPT, json.dumps(commands)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


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
def commands(stripes, start, hasty_world) -> Callable[[Path, Iterable[str], int], list[list[str]]]:
    """The commands that train stages in a folder."""

    def write(folder: Path, stages: Iterable[str], steps: int) -> list[list[str]]:
        common = ["--data", str(stripes.path), "--start", str(start), "--device", "cpu", "--steps", str(steps)]
        given = {stage: ["--teacher", str(hasty_world)] if stage in FORCING_STAGES else [] for stage in stages}
        return [["--stage", stage, "--out", str(folder / stage), *common, *given[stage]] for stage in stages]

    return write


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What the launchers' processes have printed."""
    return {}


@pytest.fixture(scope="module")
def runs(commands, printed, tmp_path_factory) -> dict[str, Path]:
    """The folders of all stages' runs by each launcher: in one process, in two, in two that split the weights."""
    folders = {name: tmp_path_factory.mktemp(name) for name in LAUNCHERS}
    for name, folder in folders.items():
        printed[name] = train(name, commands(folder, STAGES, STEPS))
    return folders


@pytest.fixture(scope="module")
def continued(commands, runs, tmp_path_factory) -> dict[str, Path]:
    """Runs that a launcher goes on with where another one has been."""
    folders = {}
    for name, before in (("one", "split"), ("split", "one")):
        folders[name] = tmp_path_factory.mktemp(f"continued-{name}")
        for stage in CONTINUED:
            shutil.copytree(runs[before] / stage, folders[name] / stage)
        train(name, commands(folders[name], CONTINUED, MORE_STEPS))
    return folders


def begun(run: Path) -> dict[str, torch.Tensor]:
    """The weights that a run began with, named as in its checkpoints."""
    weights = load_file(run / "start" / "world.safetensors")
    teacher = run / "teacher" / "world.safetensors"
    return weights | ({f"fake.{name}": value for name, value in load_file(teacher).items()} if teacher.exists() else {})


@pytest.mark.parametrize("launcher", ["two", "split"])
@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_end_where_one_does(runs, stage, launcher):
    assert_same(runs["one"] / stage, runs[launcher] / stage, STEPS)


def test_every_network_of_a_stage_is_split_where_that_was_asked_for(runs, printed):
    assert "split" not in printed["one"] + printed["two"]
    found = [int(line.split()[1]) for line in printed["split"].splitlines() if line.startswith("split: ")]
    assert found == [NETWORKS.get(stage, 1) for stage in STAGES]


@pytest.mark.parametrize("stage", CONTINUED)
def test_a_run_goes_on_in_one_process_from_split_weights_and_the_other_way_round(continued, stage):
    assert_same(continued["one"] / stage, continued["split"] / stage, MORE_STEPS)


def assert_same(one: Path, two: Path, steps: int) -> None:
    """Two runs have come to the same after so many steps."""
    newest = [checkpointing.checkpoints(run)[-1] for run in (one, two)]
    assert newest[0].name == newest[1].name == f"step-{steps:08d}"
    losses = [read_losses(run)[-1] for run in (one, two)]
    assert losses[0].keys() == losses[1].keys() and losses[0]["loss"] > 0
    for name in losses[0].keys() - {"minutes", "direction"}:  # a root mean square, averaged over processes
        assert losses[1][name] == pytest.approx(losses[0][name], rel=TOLERANCE, abs=TOLERANCE), name
    before = begun(one)
    for file in ("model.safetensors", "averaged.safetensors"):
        left, right = (load_file(path / file) for path in newest)
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
