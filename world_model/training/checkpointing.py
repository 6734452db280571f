"""Run folders: what a training run needs to go on after any kind of stop.

A checkpoint is a folder ``step-00001234`` of safetensors files and JSON files. It is written under a temporary name
and renamed when complete, and renamed again before it is removed, so a checkpoint that exists is whole; the newest two
are kept.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

KEPT = 2
BEST = "best"  # folder of the checkpoints that a stage judged to be its best, beside the newest ones
MOMENTA = (".exp_avg", ".momentum_buffer")  # one per trained parameter, of AdamW and of Muon


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    minutes: float = 0.0  # of training, over all sessions
    interrupted: bool = False  # whether a signal ended the last session
    collapsed: str | None = None  # why the run stopped itself


def checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(path for path in run.glob("step-*") if path.suffix != ".tmp")


def progress_of(run: Path) -> Progress:
    """How far a run has come by its newest checkpoint; nowhere without one."""
    existing = checkpoints(run)
    return _progress(existing[-1]) if existing else Progress()


def trained_parameters(path: Path) -> int:
    """How many numbers the optimisers of a checkpoint have moved, told by the momenta that they keep."""
    count = 0
    for file in path.glob("optimizer-*.safetensors"):
        with safe_open(file, framework="pt") as reader:
            momenta = [name for name in reader.keys() if name.endswith(MOMENTA)]
            count += sum(math.prod(reader.get_slice(name).get_shape()) for name in momenta)
    return count


def save(run: Path, progress: Progress, weights: dict, averaged: dict, optimizers: list, config: str) -> Path:
    """Write one checkpoint atomically and remove those older than the newest two.

    A checkpoint of this step that is there already is left alone: it is the same, and there may be no other yet.
    """
    final = run / f"step-{progress.step:08d}"
    if final.is_dir():
        return final
    for unfinished in run.glob("step-*.tmp"):
        shutil.rmtree(unfinished)
    temporary = final.with_suffix(".tmp")
    temporary.mkdir(parents=True)
    save_file(_contiguous(weights), temporary / "model.safetensors")
    save_file(_contiguous(averaged), temporary / "averaged.safetensors")
    for index, optimizer in enumerate(optimizers):
        save_file(_flatten(optimizer), temporary / f"optimizer-{index}.safetensors")
    (temporary / "config.json").write_text(config)
    (temporary / "progress.json").write_text(json.dumps(asdict(progress)))
    for path in temporary.iterdir():
        _flush(path)
    _flush(temporary)
    os.replace(temporary, final)
    _flush(run)
    for old in checkpoints(run)[:-KEPT]:
        os.replace(old, old.with_suffix(".tmp"))
        shutil.rmtree(old.with_suffix(".tmp"))
    return final


def load(path: Path, optimizers: list) -> tuple[Progress, dict[str, Tensor], dict[str, Tensor]]:
    """Progress, weights and averaged weights of a checkpoint; the optimisers' states are restored in place.

    Raises:
        ValueError: when an optimiser has other parameters than the checkpoint's.
    """
    for index, optimizer in enumerate(optimizers):
        _unflatten(optimizer, load_file(path / f"optimizer-{index}.safetensors"), path)
    return _progress(path), load_file(path / "model.safetensors"), load_file(path / "averaged.safetensors")


def _progress(path: Path) -> Progress:
    return Progress(**json.loads((path / "progress.json").read_text()))


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
