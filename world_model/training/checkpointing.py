"""Run folders: what a training run needs to go on after any kind of stop.

A checkpoint is a folder ``step-00001234`` of safetensors files and one JSON file. It is written under a temporary
name and renamed when complete, so a checkpoint that exists is whole; the newest two are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

KEPT = 2


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    minutes: float = 0.0  # of training, over all sessions


def checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(path for path in run.glob("step-*") if path.suffix != ".tmp")


def save(run: Path, progress: Progress, weights: dict, averaged: dict, optimizers: list, config: str) -> Path:
    """Write one checkpoint atomically and remove those older than the newest two."""
    final = run / f"step-{progress.step:08d}"
    temporary = final.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_file(_contiguous(weights), temporary / "model.safetensors")
    save_file(_contiguous(averaged), temporary / "averaged.safetensors")
    for index, optimizer in enumerate(optimizers):
        save_file(_flatten(optimizer), temporary / f"optimizer-{index}.safetensors")
    (temporary / "config.json").write_text(config)
    (temporary / "progress.json").write_text(json.dumps(asdict(progress)))
    for path in temporary.iterdir():
        _flush(path)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    _flush(run)
    for old in checkpoints(run)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load(path: Path, optimizers: list) -> tuple[Progress, dict[str, Tensor], dict[str, Tensor]]:
    """Progress, weights and averaged weights of a checkpoint; the optimisers' states are restored in place.

    Raises:
        ValueError: when an optimiser has other parameters than the checkpoint's.
    """
    progress = Progress(**json.loads((path / "progress.json").read_text()))
    for index, optimizer in enumerate(optimizers):
        _unflatten(optimizer, load_file(path / f"optimizer-{index}.safetensors"), path)
    return progress, load_file(path / "model.safetensors"), load_file(path / "averaged.safetensors")


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _flatten(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """``{"<parameter index>.<name>": tensor}``; rates and other settings are in the configuration."""
    state = optimizer.state_dict()["state"]
    flat = {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}
    return _contiguous({name: torch.as_tensor(value) for name, value in flat.items()})


def _unflatten(optimizer: torch.optim.Optimizer, flat: dict[str, Tensor], path: Path) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    complete = optimizer.state_dict()
    count = sum(len(group["params"]) for group in complete["param_groups"])
    if state and max(state) >= count:
        raise ValueError(f"{path} holds {max(state) + 1} optimiser states for {count} parameters; start another run")
    optimizer.load_state_dict({"state": state, "param_groups": complete["param_groups"]})


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
