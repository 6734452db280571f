"""Those who act: policies that see pictures and nothing else, so that the same one runs in every world.

>>> policy = load_policy("scripted", num_envs=16, seed=0)                                  # doctest: +SKIP
>>> policy.reset(np.ones(16, dtype=bool))                                               # doctest: +SKIP
>>> actions = policy.act(observations)  # uint8 [16, H, W, 3] -> [16]    # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path

from agents.policies.broken import KINDS, broken
from agents.policies.card import CARD, CLONED, CLONING, STABLE_BASELINES, read_card
from agents.policies.protocol import Policy
from agents.policies.scripted import Scripted
from agents.policies.simple import Fixed, Random

NAMES = ("random", "idle", "scripted", *(f"broken:{kind}" for kind in KINDS))
CHECKPOINT = "step-"  # folders of checkpoints are named so, with the number of steps

__all__ = ["NAMES", "Policy", "checkpoints", "load_policy"]


def load_policy(text: str, *, num_envs: int, seed: int) -> Policy:
    """A policy by name (see `NAMES`), or the trained one in a folder or .zip file.

    A folder is one that `wp2 clone` wrote, or a checkpoint of `wp2 train-agent`, or its whole run, whose newest
    checkpoint is taken.

    Args:
        num_envs: slots that it will act for.
        seed: of its generators, one per slot; policies that leave nothing to chance do not use it.

    Raises:
        ValueError: for an unknown name, a path that holds no policy, or a damaged one.
        ImportError: when the package of a trained policy's algorithm is not installed.
    """
    kind, _, rest = text.partition(":")
    if text == "random":
        return Random(num_envs, seed)
    if text == "idle":
        return Fixed(num_envs, "idle")
    if text == "scripted":
        return Scripted(num_envs)
    if kind == "broken":
        return broken(rest, num_envs, seed)
    return _load(Path(text), num_envs, seed)


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a training run, oldest first."""
    found = [path for path in run.glob(f"{CHECKPOINT}*") if (path / CARD).is_file()]
    return sorted(found, key=lambda path: read_card(path).steps)


def _load(path: Path, num_envs: int, seed: int) -> Policy:
    if not path.exists():
        raise ValueError(
            f"there is no policy {str(path)!r}; name one of {', '.join(NAMES)}, or give a trained one's path"
        )
    if path.is_dir() and not (path / CARD).is_file():
        existing = checkpoints(path)
        path = existing[-1] if existing else path
    folder = path if path.is_dir() else path.parent
    card = read_card(folder)
    if card.algorithm == CLONING:
        from agents.policies.cloned import load_cloned

        return load_cloned(folder / CLONED if path.is_dir() else path, card, num_envs)
    from agents.policies.trained import Trained, load_model

    return Trained(load_model(folder / STABLE_BASELINES if path.is_dir() else path, card), card, num_envs, seed)
