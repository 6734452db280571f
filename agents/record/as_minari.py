"""Episodes as a Minari dataset, written by Minari's own storage; pictures are kept to the last bit.

The folder is named as the dataset is, NAME-vN, and lies where ``MINARI_DATASETS_PATH`` points to:

>>> os.environ["MINARI_DATASETS_PATH"] = "data"   # doctest: +SKIP
>>> minari.load_dataset("walks-v0")               # doctest: +SKIP

Observations are the frames, actions those of the policy's own action space; ``infos["caption"]`` holds scene,
character and event of every frame. The metadata's ``provenance`` tells what made the episodes.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import wp2env
from agents.record.plan import Plan
from agents.record.play import stack_choices
from world_model.data.clips import Clip
from wp2env.spaces import ACTION_MODES, Turns
from wp2env.starts import CAPTION_FIELDS

GAME_ID = "WorldPlay2-TrueGame-v0"
NAME = re.compile(r"[\w-]+-v\d+")


def check(name: str, plan: Plan) -> None:
    """Refuse a folder's name that Minari would not take for a dataset's, and a machine without Minari.

    Raises:
        ValueError: with the form that names have, or the version of Minari that is needed.
        ImportError: where Minari or its storage is not installed.
    """
    import h5py  # noqa: F401 - what Minari writes with
    import minari
    from minari.dataset.minari_storage import MinariStorage

    if "jpeg_encoding" not in inspect.signature(MinariStorage.new).parameters:
        raise ValueError(f"Minari {minari.__version__} keeps pictures as JPEG only; install 0.5.4 or newer")
    if not NAME.fullmatch(name):
        raise ValueError(f"the folder's name {name!r} is no name of a Minari dataset; call it NAME-v0, as in walks-v0")


def write(folder: Path, clips: Iterable[Clip], name: str, about: dict) -> None:
    """Fill ``folder/data`` with the dataset ``name``; ``about`` is its provenance."""
    import minari
    from minari import MinariDataset
    from minari.dataset.minari_storage import MinariStorage

    first, clips = peek(clips)
    mode = first.meta["action_mode"]
    action_space = ACTION_MODES[mode](Turns()).space
    storage = MinariStorage.new(
        folder / "data",
        observation_space=spaces.Box(0, 255, first.frames.shape[1:], np.uint8),
        action_space=action_space,
        env_spec=_spec(about, mode),
        jpeg_encoding=False,
    )
    storage.update_episodes(_buffer(clip, action_space) for clip in clips)
    storage.update_metadata(
        {
            "dataset_id": name,
            "algorithm_name": about["policy"],
            "description": f"{first.source}; task: {about['task']}; licence: {first.licence}",
            "minari_version": minari.__version__,
            "requirements": ["worldplay2-gym"],
            "provenance": about,
        }
    )
    MinariDataset(storage)  # raises where its own reader would


def peek(clips: Iterable[Clip]) -> tuple[Clip, Iterator[Clip]]:
    """The first clip, and all of them."""
    clips = iter(clips)
    first = next(clips)
    return first, chain([first], clips)


def _buffer(clip: Clip, action_space: spaces.Space):
    from minari.data_collector import EpisodeBuffer

    ((rewards, ends),) = zip(clip.rewards.values(), clip.terminated.values(), strict=True)
    captions = [clip.caption_at(frame).as_dict() for frame in range(len(clip.frames))]
    truncated = np.zeros(len(rewards) - 1, dtype=bool)
    truncated[-1] = not clip.meta["terminated"]
    return EpisodeBuffer(
        seed=clip.meta["seed"],
        options={name: clip.meta[name] for name in ("start_index", "episode")},
        observations=clip.frames,
        actions=stack_choices(clip.meta["choices"], action_space),
        rewards=rewards[1:],
        terminations=ends[1:],
        truncations=truncated,
        infos={"caption": {name: [caption[name] for caption in captions] for name in CAPTION_FIELDS}},
    )


def _spec(about: dict, action_mode: str) -> EnvSpec:
    """The single environment to recover: the one that was recorded, with the same world, task and starts."""
    game = about["world"] is None
    spec = copy.deepcopy(gymnasium.spec(GAME_ID if game else wp2env.ENV_ID))
    spec.max_episode_steps = about["steps"]
    spec.kwargs.update(task=about["task"], action_mode=action_mode, starts=about["starts"])
    if not game:
        names = ("world", "sampling_steps", "temperature", "device")
        spec.kwargs.update({name: about[name] for name in names})
    return spec
