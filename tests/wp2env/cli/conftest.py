"""Runs ``wp2`` in this process; recordings as small as they can be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from world_model.controls import PERSPECTIVE, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ShardWriter, write_manifest
from world_model.large import LargeConfig
from wp2env.cli import main

LOOK = {"character": "Sergeant", "armour": "green", "weapon": "shotgun"}


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one sentence of a failed command, which has exit code 2 and shows no traceback."""
        assert self.code == 2 and not self.out and "Traceback" not in self.err
        sentence, *more = self.err.strip().split("\n")
        assert sentence.startswith("wp2") and ": error: " in sentence
        assert not more or more[1] == "examples:"
        return sentence


@pytest.fixture
def wp2(capsys):
    """Runs the command with the given words."""

    def run(*words) -> Answer:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        return Answer(code, *capsys.readouterr())

    return run


def clip(index: int, size: int = 32, length: int = 6) -> Clip:
    """Every second clip begins in third person; four in a row show one level."""
    view = index % 2
    actions = np.zeros((length, 6), np.float32)
    actions[:, PERSPECTIVE] = view
    caption = StructuredCaption(f"room {index}", "None" if view else "a sergeant")
    frames = np.random.default_rng(index).integers(0, 256, (length, size, size, 3), dtype=np.uint8)
    return Clip(frames, actions, ((0, caption),), meta={"level_seed": index // 4, "look": LOOK})


def recordings(folder: Path, clips: list[Clip]) -> Path:
    writer = ShardWriter(folder / "shard-00000.safetensors")
    for one in clips:
        writer.add(one)
    write_manifest(folder, [writer.close()])
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Sixteen clips of four levels."""
    return recordings(tmp_path_factory.mktemp("data"), [clip(index) for index in range(16)])


@pytest.fixture(scope="session")
def wide_data(tmp_path_factory) -> Path:
    """Clips of another size than the tiny world's."""
    return recordings(tmp_path_factory.mktemp("wide"), [clip(index, size=48) for index in range(4)])


@pytest.fixture(scope="session")
def large(toy) -> LargeConfig:
    """The large world of toy widths, with captions as long as the published ones."""
    return replace(toy, text_tokens=512)
