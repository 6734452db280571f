"""Run folders: what a training run needs to go on after any kind of stop.

A checkpoint is a folder ``step-00001234`` of safetensors files and JSON files. It is written under a temporary name
and renamed when complete, and renamed again before it is removed, so a checkpoint that exists is whole; the newest two
are kept. Its tensors are whole, too, however many processes hold their parts: any number of them can go on from it.
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
from safetensors.torch import save_file
from torch import Tensor

from world_model.training.processes import is_first
from world_model.training.sharding import gathered, like

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

    All processes call it together and the first one writes, which has one file's tensors whole at a time. A checkpoint
    of this step that is there already is left alone: it is the same, and there may be no other yet.
    """
    final = run / f"step-{progress.step:08d}"
    temporary = final.with_suffix(".tmp")
    writes = is_first() and not final.is_dir()
    if writes:
        for unfinished in run.glob("step-*.tmp"):
            shutil.rmtree(unfinished)
        temporary.mkdir(parents=True)
    states = {f"optimizer-{index}": _flatten(optimizer) for index, optimizer in enumerate(optimizers)}
    for name, tensors in ({"model": weights, "averaged": averaged} | states).items():
        whole = gathered(tensors)
        if writes:
            tensors = {key: value.contiguous() for key, value in whole.items()}  # a codec has channels last
            save_file(tensors, temporary / f"{name}.safetensors")
    if writes:
        _complete(temporary, progress, config)
    return final


def _complete(temporary: Path, progress: Progress, config: str) -> None:
    """Make a checkpoint of a folder that holds its tensors."""
    run, final = temporary.parent, temporary.with_suffix("")
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


def load(path: Path, weights: dict, averaged: dict, optimizers: list) -> Progress:
    """Progress of a checkpoint; its weights, averaged weights and optimisers' states are restored in place.

    Tensors that are split among processes take their parts of what is read; one is whole at a time.

    Raises:
        ValueError: when an optimiser has other parameters than the checkpoint's.
    """
    for index, optimizer in enumerate(optimizers):
        _restore_optimizer(optimizer, path / f"optimizer-{index}.safetensors")
    _restore(weights, path / "model.safetensors")
    _restore(averaged, path / "averaged.safetensors")
    return _progress(path)


def _progress(path: Path) -> Progress:
    return Progress(**json.loads((path / "progress.json").read_text()))


def _flatten(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """``{"<parameter index>.<name>": tensor}``; rates and other settings are in the configuration."""
    state = optimizer.state_dict()["state"]
    flat = {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}
    return {name: torch.as_tensor(value) for name, value in flat.items()}


@torch.no_grad()
def _restore(tensors: dict[str, Tensor], file: Path) -> None:
    with safe_open(file, framework="pt") as reader:
        for name, tensor in tensors.items():
            tensor.copy_(like(tensor, reader.get_tensor(name)))


def _restore_optimizer(optimizer: torch.optim.Optimizer, file: Path) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    with safe_open(file, framework="pt") as reader:
        for key in reader.keys():
            index, name = key.split(".", 1)
            if int(index) >= len(parameters):
                raise ValueError(f"{file} holds states of more than {len(parameters)} parameters; start another run")
            state.setdefault(int(index), {})[name] = like(parameters[int(index)], reader.get_tensor(key))
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
