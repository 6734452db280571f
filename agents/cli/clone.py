"""``wp2 clone``: an agent learns to imitate the players of recordings."""

from __future__ import annotations

import argparse
from pathlib import Path

from tqdm import tqdm

from wp2env.cli.arguments import MAX_SEED, whole

MAX_STEPS = 10**7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 clone``."""
    parser.add_argument("--data", type=Path, required=True, help="a folder of recordings")
    parser.add_argument("--out", type=Path, required=True, help="folder of the policy; one that is there is replaced")
    parser.add_argument("--task", help="learn only from clips that fulfil this task, up to the frame that does")
    parser.add_argument("--steps", type=whole(1, MAX_STEPS), default=2000, help="gradient steps (%(default)s)")
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="of weights and order (%(default)s)")


def main(settings: argparse.Namespace) -> None:
    """Train, and say where the policy is."""
    from agents.cloning import clone
    from agents.policies.card import CLONED
    from world_model.data.store import ClipStore

    out = settings.out
    if out.exists() and not (out.is_dir() and ((out / CLONED).is_file() or not any(out.iterdir()))):
        raise ValueError(f"{out} is there already and is no cloned policy; give another place")
    store = ClipStore(settings.data)
    with tqdm(total=settings.steps, unit="step", desc="cloning") as bar:

        def watch(step: int, loss: float) -> None:
            bar.update()
            bar.set_postfix(loss=f"{loss:.3f}")

        clone(store, out, task=settings.task, steps=settings.steps, seed=settings.seed, watch=watch)
    print(f"{out}: a policy that imitates {len(store)} recordings; see `wp2 evaluate {out}`")
