"""Worlds on disk: a folder with ``config.json``, ``world.safetensors`` (weights only) and ``card.md``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from world_model.config import WorldConfig, from_json, to_json
from world_model.files import whole
from world_model.undrawn import Undrawn
from world_model.world import World

if TYPE_CHECKING:
    from world_model.large.world import LoadedWorld

BUNDLED = Path(__file__).parent / "worlds"
WEIGHTS = "world.safetensors"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LISTED = 10  # tensor names in a message; the rest is a count


def save_world(world: World, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write configuration and weights; each file is written under a temporary name and renamed.

    Other files of the folder (its card, its start bank) are left alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().to(dtype).contiguous() for name, value in world.state_dict().items()}
    with whole(folder / "config.json") as config, whole(folder / WEIGHTS) as part:
        config.write_text(to_json(world.config))
        save_file(weights, part)
        part.chmod(0o644)  # safetensors writes for the owner alone; worlds are shared


def find_world(name_or_path: str | Path) -> Path:
    """The folder of a bundled world by name, or the given folder.

    Raises:
        FileNotFoundError: when there is neither.
    """
    bundled = BUNDLED / str(name_or_path)
    for folder in (Path(name_or_path), bundled):
        if (folder / "config.json").is_file():
            return folder
    names = sorted(path.parent.name for path in BUNDLED.glob("*/config.json"))
    raise FileNotFoundError(
        f"there is no world {str(name_or_path)!r}: no folder of that name holds a config.json, and the bundled worlds "
        f"are {', '.join(names) or 'none'}; give one of these or a folder written by `wp2 train`"
    )


def load_world(name_or_path: str | Path, device: str = "cpu", dtype: str = "float32") -> World | LoadedWorld:
    """Load a world, bundled by name or from a folder, on ``device``; large worlds (`wp2 convert`), too.

    ``dtype`` is what its networks calculate in: "float32", or "bfloat16", which is faster for many slots where the
    processor has instructions for it. Latents and noise levels stay float32. A large world can also have "int8":
    weights of 8 bits, and bfloat16 for the rest.

    Raises:
        FileNotFoundError: when there is no such world or its weights are missing.
        ValueError: when the device or the dtype does not exist here, or the file is damaged or belongs to another
            configuration.
    """
    folder = find_world(name_or_path)
    target = check_device(device)
    if is_large(folder):
        from world_model.large.world import open_large_world

        return open_large_world(folder, target, dtype)
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; choose one of {', '.join(DTYPES)}")
    try:
        config = from_json((folder / "config.json").read_text(), WorldConfig)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{folder / 'config.json'} is no configuration of a world: {error}") from error
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}; copy the weights there or choose another world")
    with Undrawn():
        world = World(config, folder)
    read_weights(world, folder / WEIGHTS)
    for network in (world.transformer, world.compressor, world.codec):
        network.to(DTYPES[dtype])
    world.codec.to(memory_format=torch.channels_last)  # many slots are decoded a fifth faster on a CPU
    return world.to(target).eval().requires_grad_(False)


def read_weights(module: torch.nn.Module, file: Path) -> None:
    """Fill a module, which may be on the meta device, from a safetensors file, as float32.

    Raises:
        ValueError: for a damaged file, and for missing, extra or misshaped tensors, listed by name.
    """
    wanted = module.state_dict()
    try:
        with safe_open(file, framework="pt") as reader:
            names = set(reader.keys())
            shapes = {name: tuple(reader.get_slice(name).get_shape()) for name in names}
            complaint = misfits(shapes, {name: tuple(value.shape) for name, value in wanted.items()})
            if complaint:
                raise ValueError(
                    f"the tensors of {file} do not fit this configuration: {complaint}; "
                    "use the config.json that was saved with them"
                )
            values = {name: reader.get_tensor(name).to(torch.float32) for name in names}
    except SafetensorError as error:
        raise ValueError(f"{file} is not a whole safetensors file ({error}); copy it again") from error
    module.load_state_dict(values, assign=True)


def check_device(device: str) -> torch.device:
    """The torch device of that name, if it is there.

    Raises:
        ValueError: otherwise.
    """
    try:
        target = torch.device(device)
        torch.empty(1, device=target)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        here = "cpu, cuda" if torch.cuda.is_available() else "cpu"
        raise ValueError(f"the device {device!r} is not available here; choose one of {here}") from error
    if target.type == "meta":
        raise ValueError("the device 'meta' holds no numbers; choose cpu or cuda")
    return target


def misfits(found: dict[str, tuple[int, ...]], wanted: dict[str, tuple[int, ...]]) -> str:
    """What is wrong with the tensor shapes ``found`` where ``wanted`` are expected, by name; empty when they fit."""
    wrong = [
        f"{name} is {list(found[name])}, not {list(wanted[name])}"
        for name in sorted(found.keys() & wanted.keys())
        if found[name] != wanted[name]
    ]
    problems = [
        ("missing", sorted(wanted.keys() - found.keys())),
        ("unknown", sorted(found.keys() - wanted.keys())),
        ("of another shape", wrong),
    ]
    return "; ".join(f"{len(names)} {kind} ({_listed(names)})" for kind, names in problems if names)


def is_large(folder: Path) -> bool:
    """Whether a folder's configuration is that of a large world."""
    try:
        return "variant" in json.loads((folder / "config.json").read_text())
    except (ValueError, TypeError):
        return False  # which reading it as that of any other world explains


def _listed(names: list[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
