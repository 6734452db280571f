"""An expert that is not trained right now, carried along from the folder of one world to that of the next.

It keeps its files, as hard links where the file system has them: nobody writes into them, since whatever is saved again
is written anew. Only where the world changes between a plain head and the heads of the few-step model does the expert's
head change with it, as it does when a distillation begins: every interval has a copy of the plain one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from world_model.large.config import SINGLE
from world_model.large.few_step import fuse_bank, intervals_of
from world_model.large.folder import expert_title
from world_model.large.tensor_files import TensorFiles, weight_files

PLAIN = ("transformer.head.weight", "transformer.head.bias")
BANK = ("parallel_decoder.weight", "parallel_decoder.bias")


def heads_file(expert: str) -> str:
    """The file with the unfused heads of a distilled expert, and its plain one: what training goes on from."""
    return "heads.safetensors" if expert == SINGLE else f"heads-{expert}.safetensors"


def read_heads(folder: Path, expert: str) -> dict[str, Tensor]:
    """The tensors `PLAIN` and `BANK` of a distilled expert.

    Raises:
        FileNotFoundError: when the folder lacks them.
    """
    file = folder / heads_file(expert)
    if not file.is_file():
        raise FileNotFoundError(
            f"{folder} has no {file.name}, without which a distilled world cannot learn; copy it there"
        )
    return load_file(file)


def write_heads(folder: Path, expert: str, heads: dict[str, Tensor]) -> None:
    """Write what `read_heads` reads, under a temporary name that is then changed."""
    file = folder / heads_file(expert)
    save_file({name: value.contiguous() for name, value in heads.items()}, f"{file}.tmp")
    os.replace(f"{file}.tmp", file)


def carry(expert: str, source: Path, folder: Path) -> None:
    """Let ``folder`` have an expert's files as ``source`` has them, and no other ones of that expert.

    Raises:
        FileNotFoundError: when the source lacks the expert.
    """
    files = _weights(source, expert)
    heads = source / heads_file(expert)
    for file in (*files, *([heads] if heads.is_file() else [])):
        _link(file.resolve(), folder / file.name)
    for file in set(weight_files(folder, f"{expert}-")) - {folder / file.name for file in files}:
        file.unlink()


def reshaped(expert: str, source: Path, folder: Path, few_step: bool) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an expert of ``source``, read one after the other, but with the heads of the few-step model in
    place of its plain one or the other way round. What a distilled expert goes on from is written into ``folder``.

    Raises:
        FileNotFoundError: when the source lacks the expert, or the heads of a distilled one.
    """
    tensors = TensorFiles(_weights(source, expert))
    if not few_step:
        heads = read_heads(source, expert)
        return _with_last_layer(tensors, {name: heads[name] for name in PLAIN})
    first, end = intervals_of(expert)
    plain = {name: tensors[name] for name in PLAIN}
    banks = [value.expand(end - first, *value.shape) for value in plain.values()]
    write_heads(folder, expert, plain | dict(zip(BANK, banks, strict=True)))
    fused = {name: fuse_bank(bank, expert).to(bank.dtype) for name, bank in zip(PLAIN, banks, strict=True)}
    return _with_last_layer(tensors, fused)


def _weights(folder: Path, expert: str) -> list[Path]:
    files = weight_files(folder, f"{expert}-")
    if not files:
        raise FileNotFoundError(f"{folder} holds no {expert_title(expert)}; convert it with --expert {expert}")
    return files


def _with_last_layer(tensors: TensorFiles, layer: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield from ((name, tensors[name]) for name in tensors.shapes if name not in layer)
    yield from layer.items()


def _link(file: Path, place: Path) -> None:
    if place.exists() and place.samefile(file):
        return
    part = place.with_name(f"{place.name}.tmp")
    part.unlink(missing_ok=True)
    try:
        os.link(file, part)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(file, part)
    os.replace(part, place)
