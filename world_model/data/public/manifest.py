"""``clips.jsonl`` of an imported store: for every clip that was looked at, where it came from and what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "clips.jsonl"


@dataclass(frozen=True)
class ClipRecord:
    """One line: a part of a source video, kept at an index of the store or refused for reasons."""

    name: str  # of the source clip
    video: str
    source: str
    licence: str
    first_frame: int | None = None  # of the video; unknown if the clip could not be read
    last_frame: int | None = None
    index: int | None = None  # in the store; None if it was refused
    refused: tuple[str, ...] = ()
    measures: dict[str, float] = field(default_factory=dict)  # of `quality`


def append(folder: Path, record: ClipRecord) -> None:
    """Add a line to the manifest of a store."""
    with open(folder / FILE, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(record)) + "\n")


def read(folder: Path) -> Iterator[ClipRecord]:
    """The lines of a store's manifest, in the order in which the clips were looked at."""
    with open(folder / FILE, encoding="utf-8") as lines:
        for line in lines:
            values = json.loads(line)
            yield ClipRecord(**{**values, "refused": tuple(values["refused"])})
