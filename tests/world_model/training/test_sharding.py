"""Networks that two processes split compute what whole ones do: values, gradients, gathered weights; and how that is
asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file

from world_model.training import sharding

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parent / "sharded.py"
CONFIGURATIONS = ROOT / "world_model" / "training" / "accelerate"
SECONDS = 300


@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="torch has no gloo"
)
def test_split_networks_compute_what_whole_ones_do():
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *launcher, SCRIPT], env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr[-3000:]


def environment_of(configuration: str) -> dict[str, str]:
    """What `accelerate launch` tells its processes of the settings in a configuration file."""
    found = load_config_from_file(str(CONFIGURATIONS / configuration)).to_dict()
    settings = {name.upper(): str(value) for name, value in found.get("fsdp_config", {}).items()}
    return settings | {"ACCELERATE_USE_FSDP": str(found["distributed_type"] == "FSDP")}


@pytest.mark.parametrize(("configuration", "wanted"), [("fsdp.yaml", True), ("replicated.yaml", False)])
def test_a_configuration_says_whether_weights_are_split(monkeypatch, configuration, wanted):
    assert not sharding.asked()
    for name, value in environment_of(configuration).items():
        monkeypatch.setenv(name, value)
    assert sharding.asked() == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsdp_version", "1"),
        ("fsdp_reshard_after_forward", "false"),
        ("fsdp_offload_params", "true"),
        ("fsdp_activation_checkpointing", "true"),
    ],
)
def test_what_is_not_done_is_not_ignored(monkeypatch, name, value):
    for known, setting in (environment_of("fsdp.yaml") | {name.upper(): value}).items():
        monkeypatch.setenv(known, setting)
    if name == "fsdp_version":
        monkeypatch.setenv("FSDP_RESHARD_AFTER_FORWARD", "FULL_SHARD")  # what that version calls it
    with pytest.raises(ValueError, match=f"{name} is .* set it to"):
        sharding.asked()


def test_gradients_are_clipped_as_torch_does_it():
    wanted, found = (torch.nn.Linear(3, 2) for _ in range(2))
    for limit in (0.1, 10.0):
        for layer in (wanted, found):
            layer.weight.grad, layer.bias.grad = torch.ones(2, 3), torch.full((2,), 2.0)
        norm = torch.nn.utils.clip_grad_norm_(wanted.parameters(), limit)
        assert torch.equal(sharding.clip_gradients(found.parameters(), limit), norm)
        assert torch.equal(found.weight.grad, wanted.weight.grad) and torch.equal(found.bias.grad, wanted.bias.grad)
