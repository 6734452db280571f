"""The two places that an agent can be in, behind the same spaces: a generated world, and the true game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from world_model.data.doom.task_names import WALK_TO_BALL

WORLD, GAME = "world", "game"
PLACES = (WORLD, GAME)
DEFAULT_TASK = WALK_TO_BALL
EPISODE_STEPS = 48  # of a task: more than twice what a straight walk takes
IMAGINED_STEPS = 16  # of one to learn from: a world's errors grow, and an agent soon lives off them


def make_env(
    place: str,
    num_envs: int,
    *,
    task: Any,
    starts: str | Path | Any | None = None,
    world: Any = "doom",
    action_mode: str = "discrete",
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    max_episode_steps: int = EPISODE_STEPS,
    dtype: str = "float32",
    device: str = "cpu",
    sampling_steps: int | None = None,
    temperature: float = 1.0,
) -> VectorEnv:
    """``num_envs`` slots in the generated world ``world``, or in the true game, to which the world, its device, its
    sampling and the ``dtype`` that its network calculates in do not matter.

    Raises:
        ValueError: for another place, and whatever the environments refuse.
        ImportError: when the true game is not installed.
    """
    shared = {
        "task": task,
        "starts": starts,
        "action_mode": action_mode,
        "autoreset_mode": autoreset_mode,
        "max_episode_steps": max_episode_steps,
    }
    if place == WORLD:
        from wp2env.vector_env import WorldPlay2VectorEnv

        sampling = {"sampling_steps": sampling_steps, "temperature": temperature}
        return WorldPlay2VectorEnv(num_envs, world, device=device, dtype=dtype, **sampling, **shared)
    if place == GAME:
        from wp2env.true_game import TrueGameVectorEnv

        return TrueGameVectorEnv(num_envs, **shared)
    raise ValueError(f"the place is {place!r}; choose one of {', '.join(PLACES)}")


def quickest_dtype() -> str:
    """What a world with many slots runs fastest in on this processor: "bfloat16" if it has instructions for it."""
    abilities = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of torch do not tell
    return "bfloat16" if abilities.get("avx512_bf16") or abilities.get("amx_bf16") else "float32"
