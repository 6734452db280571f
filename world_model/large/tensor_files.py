"""Reading weights: safetensors only, one tensor at a time, so that no second copy is ever in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import getitem
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from world_model.checkpoint import misfits

Module = TypeVar("Module", bound=torch.nn.Module)
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
WRAPPERS = ("module.", "model.")  # prefixes that training code leaves on every name; stripped in this order


class TensorFiles:
    """The tensors of one or several safetensors files by name, read when asked for.

    Raises:
        ValueError: for a file that is no safetensors file, a damaged one, or a tensor that two files hold.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places = {}
        for file in self.files:
            reader = _open(file)
            for name in reader.keys():
                if name in self._places:
                    raise ValueError(f"both {self._places[name][0]} and {file} hold {name}; leave one of them out")
                self._places[name] = file, reader, name
                self.shapes[name] = tuple(reader.get_slice(name).get_shape())
        for prefix in WRAPPERS:
            if self._places and all(name.startswith(prefix) for name in self._places):
                self._places = {name.removeprefix(prefix): place for name, place in self._places.items()}
                self.shapes = {name.removeprefix(prefix): shape for name, shape in self.shapes.items()}

    def __getitem__(self, name: str) -> Tensor:
        _, reader, stored = self._places[name]
        return reader.get_tensor(stored)

    def part(self, name: str, place: tuple[slice, ...]) -> Tensor:
        """A part of a tensor; the rest of it is not read."""
        _, reader, stored = self._places[name]
        return reader.get_slice(stored)[place]

    def __str__(self) -> str:
        return ", ".join(str(file) for file in self.files)


def weight_files(folder: Path, stem: str = "") -> list[Path]:
    """The safetensors files of one model in a folder, as its index lists them; only files that start with ``stem``."""
    for index in sorted(folder.glob(f"{stem}*.safetensors.index.json")):
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            files = [folder / name for name in sorted(names)]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} is no index of shards ({error!r}); copy it again") from None
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(f"there is no {file}, which {index.name} lists; copy it, too")
        return files
    return sorted(folder.glob(f"{stem}*.safetensors"))


def assign(module: torch.nn.Module, name: str, value: Tensor) -> None:
    """Put a tensor in a parameter's place, which may be on the meta device."""
    path, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(path), leaf, torch.nn.Parameter(value, requires_grad=False))


def fill(
    module: Module,
    files: Sequence[Path],
    published: Callable[[str], str],
    what: str,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    place: Callable[[torch.nn.Module, str, Tensor], None] = assign,
    read: Callable[[TensorFiles, str], Tensor] = getitem,
) -> Module:
    """Fill a module on the meta device with tensors that have the module's shapes under other names.

    Where two names of the module have the same published name they share one tensor. ``read`` gives a tensor by its
    published name, and ``place`` puts it in its place.

    Raises:
        ValueError: for files that are not safetensors, and for missing, unknown or misshaped tensors, listed by name.
    """
    source = TensorFiles(files)
    names = {name: published(name) for name in module.state_dict()}
    check(source, {names[name]: tuple(value.shape) for name, value in module.state_dict().items()}, what)
    sharing: dict[str, list[str]] = {}
    for ours, theirs in names.items():
        sharing.setdefault(theirs, []).append(ours)
    for theirs, all_ours in sharing.items():
        value = read(source, theirs).to(device, dtype)
        for ours in all_ours:
            place(module, ours, value)
    return module.eval().requires_grad_(False)


def check(source: TensorFiles, wanted: dict[str, tuple[int, ...]], what: str) -> None:
    """Raise a ValueError that lists what is missing, unknown or of another shape."""
    if complaint := misfits(source.shapes, wanted):
        raise ValueError(f"the tensors of {source} do not fit {what}: {complaint}")


def check_no_pickle(folder: Path) -> None:
    """Raise a ValueError for a folder whose weights are pickles alone; beside safetensors they are left unread."""
    if not any(folder.glob("*.safetensors")):
        for file in sorted(file for file in folder.iterdir() if file.suffix in PICKLES):
            raise _pickle(file)


def _pickle(file: Path) -> ValueError:
    return ValueError(
        f"{file} is a pickle, which can run any code when it is read; give the weights as .safetensors, which "
        "the publisher offers or safetensors.torch.save_file writes"
    )


def _open(file: Path):
    if Path(file).suffix in PICKLES:
        raise _pickle(file)
    try:
        return safe_open(file, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{file} is not a whole safetensors file ({error}); copy it again") from error
