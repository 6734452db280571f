"""The published control JSON: an array with one object for each video to generate.

    {"image_path": "hall.png", "perspective": "fps", "action": "w-32,w+left-32",
     "prompt1": "The scene in the video is: ...", "prompt2": "...", "prompt_event": "prompt1-32,prompt2-32"}

``image_path`` is relative to the file, ``output_name`` optional. Every key that starts with ``prompt`` holds a caption,
in the template of `StructuredCaption.text` as a rule; ``prompt_event`` says which is in force, between chunks only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from world_model.control_scripts import (
    DEFAULT_DEGREES,
    VIEWS,
    ControlScriptError,
    action_rows,
    chunk_values,
    parse_schedule,
)
from world_model.large.config import MAX_LATENTS

EVENT = "prompt_event"
CAPTION = "prompt"  # what the names of captions start with


@dataclass(frozen=True)
class Request:
    """One video to generate, worked out."""

    name: str  # of the video, without a suffix
    image: Path
    rows: np.ndarray  # float32 [T, 6]
    captions: tuple[str, ...]  # one for each chunk


def read_requests(
    file: Path, chunk_latents: int, yaw: float = DEFAULT_DEGREES, pitch: float = DEFAULT_DEGREES
) -> list[Request]:
    """The videos that a control JSON asks for; ``yaw`` and ``pitch`` are the degrees per latent of a turn and a tilt.

    Raises:
        ValueError: naming the file, the entry and what is wrong with it; an absent picture is wrong, too.
    """
    try:
        entries = json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{file} is no JSON: {error}") from error
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{file} must hold an array with one object for each video")
    found: dict[str, Request] = {}
    for index, entry in enumerate(entries):
        try:
            request = _request(entry, index, file.parent, chunk_latents, yaw, pitch)
            if request.name in found:
                raise ValueError(f"its output_name {request.name!r} is that of an earlier entry; give another")
        except ValueError as error:
            raise ValueError(f"{file}, entry {index}: {error}") from error
        found[request.name] = request
    return list(found.values())


def _request(
    entry: Mapping[str, Any], index: int, folder: Path, chunk_latents: int, yaw: float, pitch: float
) -> Request:
    captions = {key: value for key, value in entry.items() if key.startswith(CAPTION) and key != EVENT}
    if not captions:
        raise ValueError("there is no caption; give one under a key such as prompt1")
    for key in ("image_path", "perspective", "action", EVENT, *captions):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise ValueError(f"{key} must be a text that is not empty")
    if entry["perspective"] not in VIEWS:
        raise ValueError(f"the perspective {entry['perspective']!r} is not known; choose one of {', '.join(VIEWS)}")
    image = folder / entry["image_path"]
    if not image.is_file():
        raise ValueError(f"the picture {image} does not exist")
    name = entry.get("output_name", f"{index}_{image.stem}")
    if not isinstance(name, str) or not name or Path(name).name != name or name == "..":
        raise ValueError(f"the output_name {name!r} is no plain file name")
    rows = _told("action", action_rows, entry["action"], VIEWS[entry["perspective"]], yaw, pitch)
    if len(rows) > MAX_LATENTS:
        raise ValueError(
            f"the action lasts {len(rows)} latents and the model has positions for {MAX_LATENTS}; shorten it"
        )
    if len(rows) % chunk_latents:
        raise ValueError(
            f"the action lasts {len(rows)} latents, which are no whole number of chunks of {chunk_latents}; "
            f"make it {len(rows) // chunk_latents * chunk_latents + chunk_latents}"
        )
    schedule = _told(EVENT, parse_schedule, entry[EVENT], len(rows), chunk_latents, captions)
    in_force = (captions[name] for name in chunk_values(schedule, chunk_latents))
    return Request(name, image, rows, tuple(in_force))


def _told(key: str, parse: Any, *given: Any) -> Any:
    """Say which key a malformed script stands under."""
    try:
        return parse(*given)
    except ControlScriptError as error:
        raise ValueError(f"{key}: {error}") from error
