"""``wp2 convert``: published weights of a large world into our own layout."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from world_model.config import from_json
from world_model.large.config import WORLDPLAY2_14B, LargeConfig
from world_model.large.folder import EXPERTS, VARIANTS, LargeWorld, convert

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
GIB = 2**30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 convert``."""
    parser.add_argument("source", type=Path, help="folder of the published files, or the file of one expert")
    parser.add_argument("out", type=Path, help="folder of the world to write")
    parser.add_argument("--variant", required=True, choices=tuple(VARIANTS), help="which published model it is")
    parser.add_argument("--expert", choices=EXPERTS, help="convert this one alone (default: both)")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16", help="of what is written (default: bf16)")
    parser.add_argument("--config", type=Path, help="JSON of other sizes than those of worldplay2-14b")


def main(settings: argparse.Namespace) -> None:
    """Convert, and say what was written."""
    experts = (settings.expert,) if settings.expert else EXPERTS
    world = LargeWorld(_sizes(settings.config), settings.variant)
    written = convert(settings.source, settings.out, world, experts, DTYPES[settings.dtype])
    for expert, files in written.items():
        size = sum(file.stat().st_size for file in files)
        print(f"wrote the {expert}-noise expert, {size / GIB:.2f} GiB in {len(files)} files, to {settings.out}")


def _sizes(file: Path | None) -> LargeConfig:
    if file is None:
        return WORLDPLAY2_14B
    try:
        return from_json(file.read_text(), LargeConfig)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{file} is no configuration of a large world: {error}") from error
