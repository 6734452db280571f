"""The loss history of a run: ``losses.jsonl``, one line per logged step, whatever stops there were."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

FILE = "losses.jsonl"


def read_losses(run: Path) -> list[dict[str, float]]:
    """The logged steps of a run in order: ``step``, ``minutes``, ``loss`` and the stage's other metrics."""
    file = run / FILE
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # a line cut off by a kill does not count


def append_loss(run: Path, entry: Mapping[str, float]) -> None:
    """Add one logged step."""
    with open(run / FILE, "a") as file:
        file.write(json.dumps(entry) + "\n")


def rewind_losses(run: Path, step: int) -> None:
    """Forget the steps after ``step``, which a run that continues from there takes again."""
    temporary = run / f"{FILE}.tmp"
    temporary.write_text("".join(json.dumps(entry) + "\n" for entry in read_losses(run) if entry["step"] <= step))
    os.replace(temporary, run / FILE)
