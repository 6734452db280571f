"""``wp2 plan``: how much memory a world needs on each GPU, before there is one."""

from __future__ import annotations

import argparse

from world_model.config import PRESETS
from world_model.large import plan
from wp2env.cli.arguments import whole

GIB = 2**30
TRAINING_FRAMES, ROLLOUT_FRAMES = 77, 253  # 20 and 64 latents of the large presets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 plan``."""
    parser.add_argument("--preset", required=True, choices=(*plan.PRESETS, *PRESETS), help="the world's sizes")
    parser.add_argument("--gpus", type=whole(1, 10**5), default=1, help="that share it (default: %(default)s)")
    purpose = parser.add_mutually_exclusive_group()
    purpose.add_argument("--train", choices=plan.STAGES, help="plan this stage of training (default: autoregressive)")
    purpose.add_argument("--inference", action="store_true", help="plan a rollout")
    parser.add_argument(
        "--frames",
        type=whole(1, 10**6),
        help=f"of a clip or a rollout (default: {TRAINING_FRAMES} to train, {ROLLOUT_FRAMES} to roll out)",
    )
    parser.add_argument(
        "--batch", type=whole(1, 10**4), help="clips on each GPU, or rollouts on all (default: 1); guidance doubles it"
    )
    parser.add_argument(
        "--fsdp", action="store_true", help="split the blocks' weights among the GPUs, as large presets always do"
    )
    parser.add_argument("--keep-activations", action="store_true", help="train without computing blocks twice")


def main(settings: argparse.Namespace) -> None:
    """Print the plan."""
    if settings.preset in PRESETS:
        return _plan_small(settings)
    batch = settings.batch or 1
    config = plan.PRESETS[settings.preset]
    frames = settings.frames or (ROLLOUT_FRAMES if settings.inference else TRAINING_FRAMES)
    latents = plan.latents_of(config, frames)
    shared = latents, settings.gpus, batch
    if settings.inference:
        purpose, place, found = "generating", "all GPUs together", plan.plan_rollout(config, *shared)
    else:
        stage = settings.train or "autoregressive"
        purpose, place = f"training, stage {stage}, on", "each GPU"
        found = plan.plan_training(config, stage, *shared, recompute=not settings.keep_activations)
    video = config.world.video
    print(
        f"{config.world.name}: {purpose} {frames} frames of {video.height}x{video.width} ({latents} latents, at most "
        f"{found.tokens:,} tokens at once), batch {batch} on {place}\n"
        f"{found.parameters:,} parameters; GiB on each of {settings.gpus} GPU{'s' * (settings.gpus > 1)}:\n"
    )
    _print_items(found)


def _plan_small(settings: argparse.Namespace) -> None:
    """Print the plan of training a preset whose clips and batch its curriculum knows."""
    from world_model.training.memory_plan import plan_stage

    given = {"--frames": settings.frames, "--batch": settings.batch, "--inference": settings.inference}
    for option, value in (given | {"--keep-activations": settings.keep_activations}).items():
        if value:
            raise ValueError(f"{option} is for the large presets; {settings.preset} trains as its curriculum says")
    stage = settings.train or "autoregressive"
    found = plan_stage(PRESETS[settings.preset], stage, settings.gpus, settings.fsdp)
    batch = getattr(PRESETS[settings.preset].curriculum, stage).batch // settings.gpus
    print(
        f"{settings.preset}: training, stage {stage}, at most {found.tokens:,} tokens at once, batch {batch} on each "
        f"GPU\n{found.parameters:,} parameters; GiB on each of {settings.gpus} GPU{'s' * (settings.gpus > 1)}:\n"
    )
    _print_items(found)


def _print_items(found: plan.Plan) -> None:
    for item in found.items:
        if item.bytes:
            kind = f"1/{found.gpus} of {item.split / GIB:,.1f}" if item.split and found.gpus > 1 else ""
            kind += f" and {whole / GIB:,.1f}" if kind and (whole := item.bytes - item.split) else ""
            print(f"  {item.what:<30}{item.per_gpu(found.gpus) / GIB:>9,.2f}   {kind}".rstrip())
    print(f"  {'together':<30}{found.total / GIB:>9,.2f}")
