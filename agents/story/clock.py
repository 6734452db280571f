"""How long the chapters of a story took, earlier tries of them included."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from world_model.data.store import write_json


class Clock:
    """Seconds by chapter, kept in a file, so that a story that was interrupted has not begun anew."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seconds: dict[str, float] = json.loads(file.read_text()) if file.is_file() else {}

    @contextmanager
    def measure(self, chapter: str) -> Iterator[None]:
        """Add the time inside to the chapter's, and write it down."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[chapter] = self.seconds.get(chapter, 0.0) + time.monotonic() - began
            write_json(self.file, self.seconds)

    @property
    def total(self) -> float:
        """Seconds of all chapters together."""
        return sum(self.seconds.values())
