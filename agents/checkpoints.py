"""Checkpoints of an agent: each is a folder with a policy that `load_policy` reads, and a run is a folder of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from agents.algorithms import SETTINGS
from agents.policies import CHECKPOINT, checkpoints
from agents.policies.card import STABLE_BASELINES, PolicyCard, read_card
from agents.policies.trained import load_model
from world_model.data.store import write_json

SETTINGS_FILE = "run.json"


def save_checkpoint(run: Path, model: Any, card: PolicyCard) -> tuple[Path, bool]:
    """Write ``run/step-00001024`` under a temporary name and rename it; one that is there already stays as it is.

    Returns:
        The folder, and whether it is new.
    """
    folder = run / f"{CHECKPOINT}{card.steps:08d}"
    if folder.exists():
        return folder, False
    part = run / f".{folder.name}.{os.getpid()}"
    part.mkdir()
    try:
        model.save(part / STABLE_BASELINES)
        card.save(part)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder, True


def resume(run: Path, env: VecEnv, seed: int) -> Any | None:
    """The model of the newest checkpoint, ready to go on in ``env``; None where there is none.

    Experience that an algorithm replays is not kept: it gathers anew as much as it began with before it learns on.

    Raises:
        ValueError: for a damaged checkpoint.
    """
    for part in run.glob(f".{CHECKPOINT}*"):  # of a run that was killed while it wrote
        shutil.rmtree(part)
    existing = checkpoints(run)
    if not existing:
        return None
    card = read_card(existing[-1])
    model = load_model(existing[-1] / STABLE_BASELINES, card, env)
    model.set_random_seed(seed + model.num_timesteps)  # other episodes than those that it has learned from
    if isinstance(model, OffPolicyAlgorithm):
        model.learning_starts = SETTINGS[card.algorithm]["learning_starts"] + model.num_timesteps
    return model


def remember(run: Path, settings: Mapping[str, Any]) -> None:
    """Write down what a run is of; one that went on as something else would mix two.

    Raises:
        ValueError: naming what differs, for a folder that holds another run, or something else.
    """
    file = run / SETTINGS_FILE
    if not file.exists():
        if run.exists() and (not run.is_dir() or any(run.iterdir())):
            raise ValueError(f"{run} is there already and holds something else; give another place")
        run.mkdir(parents=True, exist_ok=True)
        write_json(file, dict(settings))
        return
    try:
        before = dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is damaged ({error}); choose another folder") from error
    for name, value in settings.items():
        if before.get(name) != value:
            raise ValueError(
                f"{run} was begun with {name} {before.get(name)!r}, not {value!r}; give it again, or another folder"
            )
