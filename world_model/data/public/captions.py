"""What is said about a clip, as the paper's structured caption: who, where, and what happens now (Eq. 3).

In JSON it is one object ``{"scene": ..., "character": ..., "event": ...}`` or a list of such objects with a
``"start"`` in seconds each; fields that are left out say that there is no character and no event, and in a list that
scene and character stay as they were. The public sets describe in their own words; `sentence` makes a scene of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from world_model.controls import NOTHING, StructuredCaption

FIELDS = tuple(field.name for field in fields(StructuredCaption))
UNKNOWN = {"", "unknown", "none", "n/a", "nan", "null"}

Captions = tuple[tuple[float, StructuredCaption], ...]  # (second from which it holds, caption), ascending from 0


def sentence(parts: Iterable[object]) -> str:
    """Descriptions as one field of a caption: joined by commas, white space and last full stops taken away.

    >>> sentence(["A quiet street. ", "unknown", "Kyoto", None])
    'A quiet street, Kyoto'
    """
    texts = [" ".join(str(part).split()).rstrip(". ") for part in parts if part is not None]
    return ", ".join(text for text in texts if text.lower() not in UNKNOWN)


def always(scene: str, source: Path | str, character: str = NOTHING) -> Captions:
    """One caption for the whole clip; ValueError if nothing is said about the scene."""
    if not scene:
        raise ValueError(f"{source} says nothing about the scene; write a caption or take the clip out")
    return ((0.0, StructuredCaption(scene, character)),)


def load_json(path: Path) -> dict | list:
    """A JSON file; ValueError with its name if there is none, or it is damaged or holds NaN or infinity."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_number, parse_float=_number)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be read") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error})") from None


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no number")
    return value


def read_captions(path: Path) -> Captions:
    """The captions of a file in the form that the head of this module tells."""
    content = load_json(path)
    items = content if isinstance(content, list) else [content]
    captions: list[tuple[float, StructuredCaption]] = []
    for item in items:
        if not isinstance(item, dict) or not set(item) <= {*FIELDS, "start"}:
            raise ValueError(f"{path}: a caption is an object with scene, character, event and start, not {item!r}")
        for name in FIELDS:
            if not isinstance(item.get(name), str | None):
                raise ValueError(f"{path}: the {name} of a caption is a text, not {item[name]!r}")
        texts = {name: sentence([item[name]]) or NOTHING for name in FIELDS if name in item}
        start = item.get("start", 0.0)
        if (
            isinstance(start, bool)
            or not isinstance(start, int | float)
            or (start <= captions[-1][0] if captions else start != 0)
        ):
            raise ValueError(f"{path}: starts must be seconds that ascend from 0, not {start!r}")
        if captions:
            caption = captions[-1][1].replace(**{"event": NOTHING, **texts})
        elif texts.get("scene", NOTHING) == NOTHING:
            raise ValueError(f"{path}: the first caption must describe the scene")
        else:
            caption = StructuredCaption(**texts)
        captions.append((float(start), caption))
    if not captions:
        raise ValueError(f"{path} holds no caption")
    return tuple(captions)
