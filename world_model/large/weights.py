"""The published WorldPlay2 experts: where their files are, and how they become an `Expert`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from world_model.large.config import LargeConfig
from world_model.large.expert import Expert
from world_model.large.few_step import bank_shape, fuse_bank
from world_model.large.names import from_published, published_name, published_shape
from world_model.large.tensor_files import TensorFiles, assign, check, weight_files

BANK_NAMES = tuple(f"head.{form}" for form in ("{}", "pdd_{}", "head.{}"))  # of a head per interval, one extra axis


def expert_files(folder: Path, expert: str) -> list[Path]:
    """The files of one expert, "high" or "low", in a folder laid out as a published repository.

    Raises:
        FileNotFoundError: when they are not there.
    """
    inside = folder / f"{expert}_noise_model"
    found = weight_files(inside) or weight_files(folder, inside.name)
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no weights of the {expert}-noise expert; put them in {inside.name}/ or "
            f"{inside.name}.safetensors"
        )
    return found


def load_expert(
    files: Sequence[Path],
    config: LargeConfig,
    few_step: str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    device: str | torch.device = "cpu",
) -> Expert:
    """Load one expert from its published files onto ``device`` in ``dtype``.

    ``few_step`` is "high" or "low" for an expert of the 4-step model, whose heads may be fused already or still be one
    per interval; None for the models with a plain head.

    Raises:
        ValueError: for files that are not safetensors, and for missing, unknown or misshaped tensors, listed by name.
    """
    with torch.device("meta"):
        expert = Expert(config, few_step is not None)
    for name, value in published_tensors(files, config, few_step):
        assign(expert, name, value.to(device, dtype).contiguous())
    return expert.eval().requires_grad_(False)


def published_tensors(
    files: Sequence[Path], config: LargeConfig, few_step: str | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Our names and the tensors of one published expert, read one after the other.

    ``few_step`` is as in `load_expert`.

    Raises:
        ValueError: before the first tensor, for files that are not safetensors and for tensors that do not fit.
    """
    source = TensorFiles(files)
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in Expert(config, few_step is not None).state_dict().items()}
    names = {name: published_name(name, few_step is not None) for name in shapes}
    patch = config.world.transformer.patch
    wanted = {names[name]: published_shape(names[name], shape, patch) for name, shape in shapes.items()}
    banks = _interval_banks(source) if few_step else {}
    for fused, bank in banks.items():
        wanted[bank] = bank_shape(wanted.pop(fused), few_step)
    check(source, wanted, config.world.name)
    for ours, theirs in names.items():
        value = fuse_bank(source[banks[theirs]], few_step) if theirs in banks else source[theirs]
        yield ours, from_published(theirs, value)


def _interval_banks(source: TensorFiles) -> dict[str, str]:
    """For the weight and the bias of fused heads, which tensor of the file holds them one per interval."""
    banks = {}
    for kind, axes in (("weight", 3), ("bias", 2)):
        for form in BANK_NAMES:
            name = form.format(kind)
            if len(source.shapes.get(name, ())) == axes:
                banks[f"head.block_{kind}"] = name
    return banks
