"""What ``reset(options=...)`` understands, checked whole before anything changes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from world_model.controls import FIRST_PERSON, NOTHING, THIRD_PERSON, StructuredCaption
from wp2env.starts import CAPTION_FIELDS, Start, StartBank, as_frames

START_OPTIONS = ("caption", "init_frames", "text_only", "start_index", "perspective")
OPTIONS = (*START_OPTIONS, "reset_mask")


@dataclass(frozen=True)
class StartRequest:
    """What one slot asked for; the default asks for a start drawn from the bank."""

    caption: Mapping[str, str] = field(default_factory=dict)
    frames: np.ndarray | None = None
    text_only: bool = False
    index: int | None = None
    perspective: int | None = None

    @property
    def needs_bank(self) -> bool:
        """Whether the picture comes from the bank."""
        return self.frames is None and not self.text_only

    def start(self, bank: StartBank | None, drawn: int) -> Start:
        """The start itself; ``drawn`` is the index to take when none was asked for."""
        if self.needs_bank:
            found = bank[drawn if self.index is None else self.index]
        else:
            found = Start(self.frames, StructuredCaption(self.caption["scene"]))
        view = found.perspective if self.perspective is None else self.perspective
        return replace(found, caption=found.caption.replace(**self.caption), perspective=view)


def read_requests(
    options: Mapping[str, Any], slots: np.ndarray, frame_shape: tuple[int, int, int], bank: StartBank | None
) -> dict[int, StartRequest]:
    """The request of every slot in the mask ``slots [B]``.

    A list or tuple as an option's value gives one value per slot; anything else holds for all of them.

    Raises:
        ValueError: for an unknown option, a malformed value, or options that contradict each other.
    """
    unknown = sorted(set(options) - set(OPTIONS), key=str)
    if unknown:
        raise ValueError(f"reset has no option {unknown[0]!r}; it knows {', '.join(OPTIONS)}")
    for name in START_OPTIONS:
        value = options.get(name)
        if isinstance(value, (list, tuple)) and len(value) != len(slots):
            raise ValueError(f"options[{name!r}] is a list of {len(value)} values; it takes {len(slots)}, one per slot")
    requests = {}
    for slot in np.flatnonzero(slots).tolist():
        given = {name: options.get(name) for name in START_OPTIONS}
        own = {name: value[slot] if isinstance(value, (list, tuple)) else value for name, value in given.items()}
        requests[slot] = _request(own, frame_shape, bank)
    return requests


def read_mask(options: Mapping[str, Any], num_envs: int) -> np.ndarray:
    """The slots to reset, bool ``[num_envs]``: ``options["reset_mask"]``, all of them without it.

    Raises:
        ValueError: for a mask of another type or shape, or one that chooses no slot.
    """
    if "reset_mask" not in options:
        return np.ones(num_envs, dtype=bool)
    mask = options["reset_mask"]
    mask = mask.detach().cpu().numpy() if hasattr(mask, "detach") else mask
    if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (num_envs,) or not mask.any():
        raise ValueError(
            f"options['reset_mask'] is {mask!r:.80}; give a boolean array of shape ({num_envs},) with at least one True"
        )
    return mask.copy()


def read_seeds(seed: Any, num_envs: int) -> dict[int, int | None]:
    """A seed per slot: ``seed + slot`` for a number, else one each; None keeps a slot's stream.

    Raises:
        ValueError: for a wrong number of seeds, or one that is no whole number from 0 up.
    """
    if isinstance(seed, (Sequence, np.ndarray)) and not isinstance(seed, str):
        seeds = list(seed)
    elif isinstance(seed, (int, np.integer)) and seed >= 0:
        seeds = [int(seed) + slot for slot in range(num_envs)]
    else:  # None, or nothing that counts: refused below
        seeds = [seed] * num_envs
    if len(seeds) != num_envs:
        raise ValueError(f"there are {len(seeds)} seeds for {num_envs} slots; give one each, or one number")
    for one in seeds:
        if one is not None and (not isinstance(one, (int, np.integer)) or one < 0):
            raise ValueError(f"a seed is {one!r:.60}; give whole numbers from 0 up, or None")
    return {slot: None if one is None else int(one) for slot, one in enumerate(seeds)}


def caption_fields(caption: Any) -> dict[str, str]:
    """The fields that a caption sets; a `StructuredCaption` without character or event leaves these open.

    Raises:
        ValueError: for an unknown field or a text that is none.
    """
    if isinstance(caption, StructuredCaption):
        caption = {name: text for name, text in caption.as_dict().items() if name == "scene" or text != NOTHING}
    if not isinstance(caption, Mapping):
        raise ValueError(f"the caption is {caption!r:.60}; give a dict with {', '.join(CAPTION_FIELDS)}")
    for name, text in caption.items():
        if name not in CAPTION_FIELDS:
            raise ValueError(f"a caption has no field {name!r}; it has {', '.join(CAPTION_FIELDS)}")
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"the caption's {name} is {text!r:.60}; give a text, {NOTHING!r} for nothing")
    return dict(caption)


def _request(values: Mapping[str, Any], frame_shape: tuple[int, int, int], bank: StartBank | None) -> StartRequest:
    caption = {} if values["caption"] is None else caption_fields(values["caption"])
    frames = None if values["init_frames"] is None else as_frames(values["init_frames"], frame_shape)
    request = StartRequest(
        caption, frames, _flag(values["text_only"]), _index(values["start_index"], bank), _view(values["perspective"])
    )
    if (frames is not None) + request.text_only + (values["start_index"] is not None) > 1:
        raise ValueError("init_frames, text_only and start_index exclude each other; give one of them")
    if not request.needs_bank and "scene" not in caption:
        raise ValueError(
            "a start from init_frames or from text alone has no caption yet; add options['caption'] = {'scene': ...}"
        )
    if request.needs_bank and bank is None:
        raise ValueError(
            "this world has no bank of starts; give one with `starts=FILE`, or reset with options "
            "{'init_frames': picture, 'caption': {'scene': ...}}, or {'text_only': True, 'caption': {'scene': ...}}"
        )
    return request


def _flag(value: Any) -> bool:
    if value is not None and not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"text_only is {value!r:.60}; give True or False")
    return bool(value)


def _index(value: Any, bank: StartBank | None) -> int | None:
    if value is None or bank is None:
        return None
    try:
        index = operator.index(value)
    except TypeError as error:
        raise ValueError(f"start_index is {value!r:.60}; give a whole number") from error
    if not 0 <= index < len(bank):
        raise ValueError(f"start_index is {index}; the bank holds {len(bank)} starts, numbered from 0")
    return index


def _view(value: Any) -> int | None:
    if value is None:
        return None
    if np.ndim(value) or value not in (THIRD_PERSON, FIRST_PERSON):
        raise ValueError(f"perspective is {value!r:.60}; give {THIRD_PERSON} (third person) or {FIRST_PERSON} (first)")
    return int(value)
