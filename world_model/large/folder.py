"""Large worlds in our own layout: ``config.json`` and each expert's weights in shards, under our names.

    config.json               a `LargeWorld`
    high-00001.safetensors    the high-noise expert, then high-00002 and so on; low-… the other one, only-… a single one
    vae, text_encoder, tokenizer    what every world needs beside its experts, in diffusers' and transformers' formats

`convert` writes the first two from the published files or from public video weights, reading tensor by tensor and
holding no more than one shard; `link_companions` links the others.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from world_model.config import from_json, to_json
from world_model.large.base_models import base_files, base_tensors
from world_model.large.config import SINGLE, LargeConfig
from world_model.large.expert import Expert
from world_model.large.int8 import assign_int8
from world_model.large.parallel import ALONE, Share, check_split, connect
from world_model.large.tensor_files import PICKLES, assign, fill, weight_files
from world_model.large.weights import expert_files, published_tensors

# The published models and what starts from public video weights, and whether they have few-step heads.
VARIANTS = {"fast": True, "ar": False, "bi": False, "base": False}
COMPANIONS = ("vae", "text_encoder", "tokenizer")
SHARD_BYTES = 2 * 2**30
CONFIG = "config.json"


@dataclass(frozen=True)
class LargeWorld:
    """What the ``config.json`` of such a folder says."""

    config: LargeConfig
    variant: str

    @property
    def few_step(self) -> bool:
        """Whether the experts have the heads of the 4-step model."""
        return VARIANTS[self.variant]


def convert(
    source: Path,
    folder: Path,
    world: LargeWorld,
    experts: Sequence[str] | None = None,
    dtype: torch.dtype = torch.bfloat16,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, list[Path]]:
    """Write experts of a published checkpoint into ``folder``, and return the files of each.

    ``source`` is a folder laid out as a published repository (for the variant "base" as a diffusers pipeline), or the
    one file of the one expert asked for; ``experts`` are all of the world unless given. Everything is written under
    temporary names and renamed when it is whole; the other expert's files are left alone.

    Raises:
        FileNotFoundError: when the source lacks an expert.
        ValueError: for files that are not safetensors, tensors that do not fit, listed by name, and for a folder that
            has these experts already or belongs to another world.
    """
    experts = world.config.experts if experts is None else experts
    sources = {expert: _source_files(source, expert, experts, world.variant) for expert in experts}
    _refuse(folder, world, experts)
    tensors = {}  # of which nothing is read before it is written
    for expert, files in sources.items():
        if world.variant == "base":
            tensors[expert] = base_tensors(files, world.config)
        else:
            tensors[expert] = published_tensors(files, world.config, expert if world.few_step else None)
    return write_experts(folder, world, tensors, dtype, shard_bytes)


def write_experts(
    folder: Path,
    world: LargeWorld,
    experts: Mapping[str, Iterable[tuple[str, Tensor]]],
    dtype: torch.dtype | None = torch.bfloat16,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, list[Path]]:
    """Write experts, each given as the names and tensors of an `Expert`, and the configuration into ``folder``, over
    those that are there, and return the files of each; all under temporary names that are then renamed. Without a
    ``dtype`` every tensor keeps its own."""
    folder.mkdir(parents=True, exist_ok=True)
    part = f".{uuid.uuid4().hex}.tmp"
    try:
        written = {
            expert: _write_shards(tensors, folder, expert, dtype, shard_bytes, part)
            for expert, tensors in experts.items()
        }
        (folder / (CONFIG + part)).write_text(to_json(world))
        for file in (*(file for files in written.values() for file in files), folder / CONFIG):
            os.replace(f"{file}{part}", file)
        for expert, files in written.items():  # an earlier, larger copy had more shards
            for file in set(folder.glob(f"{expert}-*.safetensors")) - set(files):
                file.unlink()
    finally:
        for file in folder.glob(f"*{part}"):
            file.unlink()
    return written


def read_large_world(folder: Path) -> LargeWorld:
    """The configuration of a folder that `convert` wrote.

    Raises:
        FileNotFoundError: when there is none.
        ValueError: when it is not one of a large world.
    """
    file = folder / CONFIG
    if not file.is_file():
        raise FileNotFoundError(f"{folder} has no {CONFIG}; give a folder written by `wp2 convert`")
    try:
        world = from_json(file.read_text(), LargeWorld)
        if world.variant not in VARIANTS:
            raise ValueError(f"there is no variant {world.variant!r}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{file} is no configuration of a large world: {error}") from error
    return world


def load_large_world(
    folder: Path,
    experts: Iterable[str] | None = None,
    dtype: torch.dtype = torch.bfloat16,
    device: str | torch.device = "cpu",
    int8: bool = False,
    share: Share = ALONE,
) -> dict[str, Expert]:
    """The experts of a folder that `convert` wrote (default: all), each tensor read once onto ``device`` in ``dtype``.

    With ``int8`` the linear layers of the blocks are kept in 8 bits (`int8`), one being rounded after the other.
    ``share`` is the part of the blocks that is read, where several processes have them together (`parallel`).

    Raises:
        FileNotFoundError: when the folder or the weights of an expert are not there.
        ValueError: for damaged files, and for missing, unknown or misshaped tensors, listed by name, and for
            a number of processes that these experts do not split among.
    """
    world = read_large_world(folder)
    check_split(world.config, share.count)
    loaded = {}
    for name in world.config.experts if experts is None else experts:
        files = weight_files(folder, f"{name}-")
        if not files:
            raise FileNotFoundError(f"{folder} holds no {expert_title(name)}; convert it with --expert {name}")
        with torch.device("meta"):
            expert = Expert(world.config, world.few_step)
        place = assign_int8 if int8 else assign
        fill(expert, files, str, world.config.world.name, dtype, device, place, share.read)
        loaded[name] = connect(expert, share)
    return loaded


def expert_title(expert: str) -> str:
    """What to call an expert."""
    return "expert" if expert == SINGLE else f"{expert}-noise expert"


def link_companions(folder: Path, source: Path) -> list[str]:
    """Link what ``source``, a diffusers pipeline or a large world, has of `COMPANIONS` and ``folder`` lacks; returns
    their names."""
    missing = [name for name in COMPANIONS if (source / name).exists() and not (folder / name).exists()]
    for name in missing:
        (folder / name).symlink_to((source / name).resolve())
    return missing


def _source_files(source: Path, expert: str, experts: Sequence[str], variant: str) -> list[Path]:
    if source.is_file():
        if len(experts) > 1:
            raise ValueError(f"{source} is one file; say with --expert which expert it is, {' or '.join(experts)}")
        return [source]
    if not source.is_dir():
        raise FileNotFoundError(f"{source} does not exist; give a folder or a file with published weights")
    find, places = (base_files, "transformer*") if variant == "base" else (expert_files, f"{expert}_noise_model*")
    try:
        return find(source, expert)
    except FileNotFoundError:
        files = (file for place in sorted(source.glob(places)) for file in (*sorted(place.rglob("*")), place))
        pickles = [file for file in files if file.suffix in PICKLES]
        if not pickles:
            raise
        return pickles[:1]  # which is refused with the reason


def _refuse(folder: Path, world: LargeWorld, experts: Sequence[str]) -> None:
    """Raise a ValueError where writing would mix two worlds or replace one."""
    for expert in experts:
        if weight_files(folder, f"{expert}-"):
            raise ValueError(f"{folder} holds the {expert_title(expert)} already; give another folder")
    if (folder / CONFIG).exists() and read_large_world(folder) != world:
        raise ValueError(f"{folder / CONFIG} belongs to another world; give another folder")


def _write_shards(
    tensors: Iterable[tuple[str, Tensor]],
    folder: Path,
    expert: str,
    dtype: torch.dtype | None,
    shard_bytes: int,
    part: str,
) -> list[Path]:
    """Save tensors in shards of about ``shard_bytes`` under names that end with ``part``; returns the final names."""
    files: list[Path] = []
    shard: dict[str, Tensor] = {}
    size = 0

    def write() -> None:
        files.append(folder / f"{expert}-{len(files) + 1:05}.safetensors")
        save_file(shard, f"{files[-1]}{part}", metadata={"format": "pt"})
        shard.clear()

    for name, value in tensors:
        value = value.to(dtype or value.dtype).contiguous()
        if shard and size + value.nbytes > shard_bytes:
            write()
            size = 0
        shard[name] = value
        size += value.nbytes
    write()
    return files
