"""``wp2 convert``: published weights of a large world, or public video weights, into our own layout."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from world_model.config import from_json
from world_model.large.config import LARGE_PRESETS, SINGLE, WORLDPLAY2_14B, LargeConfig
from world_model.large.folder import COMPANIONS, VARIANTS, LargeWorld, convert, expert_title, link_companions
from world_model.large.hub import local_folder

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
GIB = 2**30
EXPERTS = (*WORLDPLAY2_14B.experts, SINGLE)
WEIGHTS = {"high": ("high_noise_model", "transformer/"), "low": ("low_noise_model", "transformer_2/")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 convert``."""
    parser.add_argument("source", help="folder or hub id of the published files, or the file of one expert")
    parser.add_argument("out", type=Path, help="folder of the world to write")
    parser.add_argument(
        "--variant", required=True, choices=tuple(VARIANTS), help="which published model it is; base: Wan's own weights"
    )
    parser.add_argument(
        "--preset", choices=tuple(LARGE_PRESETS), default=WORLDPLAY2_14B.world.name, help="its sizes (%(default)s)"
    )
    parser.add_argument("--expert", choices=EXPERTS, help="convert this one alone (default: all)")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16", help="of what is written (default: bf16)")
    parser.add_argument("--config", type=Path, help="JSON of other sizes than those of the presets")
    parser.add_argument(
        "--companions", help=f"folder or hub id of a Wan pipeline whose {', '.join(COMPANIONS)} the world shall use"
    )


def main(settings: argparse.Namespace) -> None:
    """Convert, and say what was written."""
    config = LARGE_PRESETS[settings.preset] if settings.config is None else _sizes(settings.config)
    experts = (settings.expert,) if settings.expert else config.experts
    if unknown := set(experts) - set(config.experts):
        raise ValueError(f"{config.world.name} has no expert {unknown.pop()!r}; choose {' or '.join(config.experts)}")
    if settings.variant != "base" and SINGLE in config.experts:
        raise ValueError(
            f"the published variant {settings.variant!r} has two experts and {config.world.name} one; give "
            f"--preset {WORLDPLAY2_14B.world.name}, or --variant base"
        )
    wanted = [beginning for expert in experts for beginning in WEIGHTS.get(expert, ("transformer/",))]
    source = local_folder(settings.source, wanted)
    companions = settings.companions or (settings.source if settings.variant == "base" else None)
    found = None if companions is None else local_folder(companions, [f"{name}/" for name in COMPANIONS])
    written = convert(source, settings.out, LargeWorld(config, settings.variant), experts, DTYPES[settings.dtype])
    for expert, files in written.items():
        size = sum(file.stat().st_size for file in files)
        print(f"wrote the {expert_title(expert)}, {size / GIB:.2f} GiB in {len(files)} files, to {settings.out}")
    if linked := [] if found is None else link_companions(settings.out, found):
        print(f"linked {', '.join(linked)} of {companions}")
    elif settings.companions:  # asked for, not tried as the source of base weights
        print(f"linked nothing of {companions}: it has none of {', '.join(COMPANIONS)} that the world lacks")


def _sizes(file: Path) -> LargeConfig:
    try:
        return from_json(file.read_text(), LargeConfig)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"{file} is no configuration of a large world: {error}") from error
