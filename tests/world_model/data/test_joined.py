"""Several stores read as one."""

from __future__ import annotations

import numpy as np
import pytest

from world_model.controls import StructuredCaption
from world_model.data.clips import Clip
from world_model.data.joined import JoinedStore
from world_model.data.store import ShardWriter, StoreError, write_manifest


def store(folder, lengths, size=8):
    folder.mkdir()
    entries = []
    for index, length in enumerate(lengths):
        writer = ShardWriter(folder / f"shard-{index:05d}.safetensors")
        frames = np.full((length, size, size, 3), length, np.uint8)
        writer.add(Clip(frames, np.zeros((length, 6), np.float32), ((0, StructuredCaption("a hall")),)))
        entries.append(writer.close())
    write_manifest(folder, entries)
    return folder


def test_clips_follow_each_other_store_by_store(tmp_path):
    joined = JoinedStore([store(tmp_path / "a", [3, 4]), store(tmp_path / "b", [5])])
    assert len(joined) == 3 and len(joined.entries) == 3
    assert [joined.length(k) for k in range(3)] == [3, 4, 5]
    assert [int(joined[k].frames[0, 0, 0, 0]) for k in range(3)] == [3, 4, 5]
    assert len(joined.window(2, 1, 3).frames) == 3
    for index in (-1, 3):
        with pytest.raises(IndexError, match=f"clip {index} is outside these stores of 3 clips"):
            joined.length(index)


def test_pictures_of_two_sizes_do_not_join(tmp_path):
    with pytest.raises(StoreError, match="8x8 in .*a, 16x16 in .*b"):
        JoinedStore([store(tmp_path / "a", [3]), store(tmp_path / "b", [3], size=16)])
