"""``wp2 plan``: how much memory a world needs on each GPU, before there is one."""

from __future__ import annotations

import argparse

from world_model.config import PRESETS
from world_model.large import plan
from world_model.training.memory_plan import STAGES, plan_large_stage, plan_stage, window_settings
from wp2env.cli.arguments import whole

GIB = 2**30
ROLLOUT_FRAMES = 253  # 64 latents of the large presets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 plan``."""
    parser.add_argument("--preset", required=True, choices=(*plan.PRESETS, *PRESETS), help="the world's sizes")
    parser.add_argument("--gpus", type=whole(1, 10**5), default=1, help="that share it (default: %(default)s)")
    purpose = parser.add_mutually_exclusive_group()
    purpose.add_argument("--train", choices=STAGES, help="plan this stage of training (default: autoregressive)")
    purpose.add_argument("--inference", action="store_true", help="plan a rollout")
    parser.add_argument(
        "--frames",
        type=whole(1, 10**6),
        help="of a recording with its history, or of a rollout (default: the longest that the curriculum has, one clip "
        f"after the start of stages that roll out, {ROLLOUT_FRAMES} to generate)",
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
    batch, config = settings.batch or 1, plan.PRESETS[settings.preset]
    latents = None if settings.frames is None else plan.latents_of(config, settings.frames)
    if settings.inference:
        for option in ("fsdp", "keep_activations"):
            if getattr(settings, option):
                raise ValueError(f"--{option.replace('_', '-')} is for training; leave it out with --inference")
        purpose, place = "generating", "all GPUs together"
        latents = latents or plan.latents_of(config, ROLLOUT_FRAMES)
        found = plan.plan_rollout(config, latents, settings.gpus, batch)
    else:
        stage = settings.train or "autoregressive"
        purpose, place = f"training, stage {stage}, on", "each GPU"
        trained = window_settings(config, stage, latents, batch * settings.gpus)
        latents = trained.window
        found = plan_large_stage(config, stage, trained, settings.gpus, not settings.keep_activations)
    video = config.world.video
    print(
        f"{config.world.name}: {purpose} {plan.frames_of(config, latents)} frames of {video.height}x{video.width} "
        f"({latents} latents, at most {found.tokens:,} tokens at once), batch {batch} on {place}\n"
        f"{found.parameters:,} parameters; GiB on each of {settings.gpus} GPU{'s' * (settings.gpus > 1)}:\n"
    )
    _print_items(found)


def _plan_small(settings: argparse.Namespace) -> None:
    """Print the plan of training a preset whose clips and batch its curriculum knows."""
    given = {"--frames": settings.frames, "--batch": settings.batch, "--inference": settings.inference}
    for option, value in (given | {"--keep-activations": settings.keep_activations}).items():
        if value:
            raise ValueError(f"{option} is for the large presets; {settings.preset} trains as its curriculum says")
    stage = settings.train or "autoregressive"
    found = plan_stage(PRESETS[settings.preset], stage, settings.gpus, settings.fsdp)
    batch = STAGES[stage].settings(PRESETS[settings.preset]).batch // settings.gpus
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
            print(f"  {item.what:<34}{item.per_gpu(found.gpus) / GIB:>9,.2f}   {kind}".rstrip())
    print(f"  {'together':<34}{found.total / GIB:>9,.2f}")
