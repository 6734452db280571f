"""Where episodes begin: the world's bank of recorded starts, and pictures that users bring."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from world_model.controls import ACTION_DIM, FIRST_PERSON, NOTHING, PERSPECTIVE, StructuredCaption
from world_model.files import whole
from wp2env.spaces import as_array

BANK_FILE = "starts.safetensors"
CAPTION_FIELDS = ("scene", "character", "event")


@dataclass(frozen=True)
class Start:
    """One place to begin.

    ``frames`` are uint8 ``[T, H, W, 3]``, the newest one last, or None to begin from text alone. ``caption`` holds the
    character's text for the third person; ``perspective`` is the view of the newest frame; ``index`` is the place in
    the bank, -1 for a start that is not from there. ``actions`` are the rows ``[T, 6]`` that led to the frames, where
    they are known, and ``origin`` tells how to come here in the true game.
    """

    frames: np.ndarray | None
    caption: StructuredCaption
    perspective: int = FIRST_PERSON
    index: int = -1
    actions: np.ndarray | None = None
    origin: Mapping[str, Any] | None = None

    def caption_in_view(self) -> StructuredCaption:
        """The caption with the character that its perspective shows: "None" in first person."""
        return self.caption.replace(character=self.character(self.perspective))

    def character(self, view: int) -> str:
        """The character's text in a perspective."""
        return NOTHING if view == FIRST_PERSON else self.caption.character

    def rows(self, frames_per_latent: int) -> np.ndarray:
        """Action rows ``[latents, 6]`` to hand to the world with the frames: the recorded ones where each frame is a
        latent and has one, else idle, in the start's perspective."""
        if self.actions is not None and self.frames is not None and frames_per_latent == 1:
            return np.asarray(self.actions, np.float32)[-len(self.frames) :]
        latents = 1 if self.frames is None else 1 + (len(self.frames) - 1) // frames_per_latent
        rows = np.zeros((latents, ACTION_DIM), dtype=np.float32)
        rows[:, PERSPECTIVE] = self.perspective
        return rows


@dataclass(frozen=True)
class StartBank:
    """Recorded starts: ``frames`` uint8 ``[N, T, H, W, 3]``, ``perspectives`` uint8 ``[N]`` and ``N`` captions.

    A bank that the true game can begin from, too, holds the ``actions`` float32 ``[N, T, 6]`` that led to the frames,
    and ``N`` ``origins``, JSON-able: ``level_seed``, and the fields of the engine's ``start`` and ``look``, from which
    these actions lead to the newest frame.
    """

    frames: np.ndarray
    captions: tuple[StructuredCaption, ...]
    perspectives: np.ndarray
    actions: np.ndarray | None = None
    origins: tuple[Mapping[str, Any], ...] | None = None

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Start:
        return Start(
            self.frames[index],
            self.captions[index],
            int(self.perspectives[index]),
            index,
            None if self.actions is None else self.actions[index],
            None if self.origins is None else self.origins[index],
        )

    def save(self, file: str | Path) -> None:
        """Write the bank as safetensors, whole or not at all; `read_bank` is the inverse."""
        notes = {"captions": json.dumps([caption.as_dict() for caption in self.captions])}
        tensors = {
            "frames": np.ascontiguousarray(self.frames, dtype=np.uint8),
            "perspective": np.ascontiguousarray(self.perspectives, dtype=np.uint8),
        }
        if self.actions is not None:
            tensors["actions"] = np.ascontiguousarray(self.actions, dtype=np.float32)
        if self.origins is not None:
            notes["origins"] = json.dumps(list(self.origins))
        with whole(Path(file)) as part:
            save_file(tensors, str(part), metadata=notes)
            part.chmod(0o644)  # safetensors writes for the owner alone; banks are shared


def find_bank(given: str | Path | StartBank | None, world_folder: Path | None) -> StartBank | None:
    """The bank that the user gave, or the one in the world's folder, or None where there is neither.

    Raises:
        FileNotFoundError, ValueError: as `read_bank`, for a file that the user named or that is damaged.
    """
    if given is None:
        own = None if world_folder is None else world_folder / BANK_FILE
        return read_bank(own) if own is not None and own.is_file() else None
    return given if isinstance(given, StartBank) else read_bank(given)


def read_bank(file: str | Path) -> StartBank:
    """Read a bank of starts; the same file is read once per process.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is damaged or its parts do not belong together.
    """
    file = Path(file)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(file)!r}; give `starts=` a bank that StartBank.save wrote")
    return _read(file, stamp(file))


def stamp(file: Path) -> tuple[int, ...]:
    """What changes when a file is written anew; its time alone is too coarse for two writes in a row."""
    now = file.stat()
    return now.st_mtime_ns, now.st_size, now.st_ino


@lru_cache(maxsize=8)
def _read(file: Path, written: tuple[int, ...]) -> StartBank:
    try:
        with safe_open(str(file), framework="numpy") as reader:
            frames, perspectives = reader.get_tensor("frames"), reader.get_tensor("perspective")
            actions = reader.get_tensor("actions") if "actions" in reader.keys() else None
            notes = reader.metadata()
            captions = tuple(StructuredCaption(**fields) for fields in json.loads(notes["captions"]))
            origins = tuple(json.loads(notes["origins"])) if "origins" in notes else None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is no bank of starts ({error}); write one with StartBank.save") from error
    shape = frames.shape
    if frames.dtype != np.uint8 or len(shape) != 5 or shape[4] != 3 or 0 in shape[:2]:
        raise ValueError(f"the frames of {file} are {frames.dtype} {list(shape)}; a bank holds uint8 [N, T, H, W, 3]")
    if not len(frames) == len(captions) == len(perspectives):
        raise ValueError(
            f"{file} holds {len(frames)} starts, {len(captions)} captions and {len(perspectives)} perspectives; "
            "write it again with one of each per start"
        )
    if actions is not None and (actions.dtype != np.float32 or actions.shape != (*shape[:2], ACTION_DIM)):
        raise ValueError(
            f"the actions of {file} are {actions.dtype} {list(actions.shape)}; a bank holds float32 "
            f"{[*shape[:2], ACTION_DIM]}, a row for each frame"
        )
    if origins is not None and (len(origins) != len(frames) or actions is None):
        raise ValueError(
            f"{file} holds {len(frames)} starts, {len(origins)} origins and {'no' if actions is None else 'their'} "
            "actions; write it again with an origin and actions for each start"
        )
    return StartBank(frames, captions, perspectives, actions, origins)


def as_frames(picture: Any, frame_shape: tuple[int, int, int]) -> np.ndarray:
    """A user's picture ``[h, w, 3]`` or frames ``[T, h, w, 3]``, uint8 RGB, as frames ``[T, H, W, 3]`` of a world.

    Pictures of another size are cropped around their centre to the world's aspect ratio and then resized, by area
    averages when they shrink and bilinearly when they grow.

    Raises:
        ValueError: for another type or number of axes.
    """
    frames = as_array(picture)
    if frames.dtype != np.uint8 or frames.ndim not in (3, 4) or frames.shape[-1] != 3 or 0 in frames.shape:
        raise ValueError(
            f"init_frames are {frames.dtype} {list(frames.shape)}; give an RGB picture, uint8 [height, width, 3] with "
            "values 0 to 255, or frames [time, height, width, 3]"
        )
    return np.stack([_fit(frame, *frame_shape[:2]) for frame in frames.reshape(-1, *frames.shape[-3:])])


def newest_whole_chunks(frames: np.ndarray, frames_per_chunk: int) -> np.ndarray:
    """The newest frames whose number is 1 + a multiple of a chunk's, which is what a stream begins from."""
    return frames[-(1 + (len(frames) - 1) // frames_per_chunk * frames_per_chunk) :]


def _fit(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    rows, columns = frame.shape[:2]
    if (rows, columns) == (height, width):
        return frame.copy()
    crop_rows = min(rows, max(1, round(columns * height / width)))
    crop_columns = min(columns, max(1, round(rows * width / height)))
    top, left = (rows - crop_rows) // 2, (columns - crop_columns) // 2
    crop = np.ascontiguousarray(frame[top : top + crop_rows, left : left + crop_columns])
    shrinks = crop_rows >= height and crop_columns >= width
    return cv2.resize(crop, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
