"""The clip store: what goes in comes out, and damage is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from world_model.controls import StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore, ShardWriter, StoreError, write_manifest

SIDE = 8
ROOM = StructuredCaption("a room")
captions = st.builds(StructuredCaption, scene=st.text(max_size=20), event=st.text(max_size=8))


def make_clip(length: int, seed: int = 0, caption=ROOM, pose=True, tasks=("reach",)) -> Clip:
    rng = np.random.default_rng(seed)
    return Clip(
        frames=rng.integers(0, 256, (length, SIDE, SIDE, 3), dtype=np.uint8),
        actions=rng.normal(size=(length, 6)).astype(np.float32),
        captions=((0, caption), (length // 2, StructuredCaption("elsewhere", "a marine", "rain")))[: min(length, 2)],
        pose=rng.normal(size=(length, 5)).astype(np.float32) if pose else None,
        rewards={task: rng.normal(size=length).astype(np.float32) for task in tasks},
        terminated={task: rng.random(length) < 0.5 for task in tasks},
        source="somewhere",
        licence="free",
        meta={"seed": seed, "nested": {"event": None}},
    )


def write_store(folder, groups: list[list[Clip]]) -> None:
    entries = []
    for k, clips in enumerate(groups):
        writer = ShardWriter(folder / f"shard-{k:05d}.safetensors")
        for clip in clips:
            writer.add(clip)
        entries.append(writer.close())
    write_manifest(folder, entries, {"made by": "test"})


@pytest.fixture
def store_folder(tmp_path):
    write_store(tmp_path, [[make_clip(5, seed=k) for k in range(3)], [make_clip(7, seed=9)]])
    return tmp_path


def assert_same(clip: Clip, other: Clip) -> None:
    np.testing.assert_array_equal(clip.frames, other.frames)
    np.testing.assert_array_equal(clip.actions, other.actions)
    assert (clip.pose is None) == (other.pose is None)
    if clip.pose is not None:
        np.testing.assert_array_equal(clip.pose, other.pose)
    assert list(clip.rewards) == list(other.rewards) and list(clip.terminated) == list(other.terminated)
    for task in clip.rewards:
        np.testing.assert_array_equal(clip.rewards[task], other.rewards[task])
        np.testing.assert_array_equal(clip.terminated[task], other.terminated[task])
        assert other.terminated[task].dtype == np.bool_
    assert (clip.captions, clip.source, clip.licence, clip.meta) == (
        other.captions,
        other.source,
        other.licence,
        other.meta,
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    caption=captions,
    pose=st.booleans(),
    tasks=st.sampled_from([(), ("reach",), ("reach", "collect")]),
    data=st.data(),
)
def test_clips_come_back_as_they_went_in(tmp_path, lengths, caption, pose, tasks, data):
    clips = [make_clip(length, k, caption, pose, tasks) for k, length in enumerate(lengths)]
    write_store(tmp_path, [clips])
    store = ClipStore(tmp_path)
    store.verify()
    assert len(store) == len(clips) and [store.length(k) for k in range(len(clips))] == lengths
    for k, clip in enumerate(clips):
        assert_same(clip, store[k])
    index = data.draw(st.integers(0, len(clips) - 1))
    start = data.draw(st.integers(0, lengths[index] - 1))
    length = data.draw(st.integers(1, lengths[index] - start))
    window = store.window(index, start, length)
    np.testing.assert_array_equal(window.frames, clips[index].frames[start : start + length])
    np.testing.assert_array_equal(window.actions, clips[index].actions[start : start + length])
    assert window.captions[0][0] == 0
    for t in range(length):
        assert window.caption_at(t) == clips[index].caption_at(start + t)


def test_reading_a_clip_copies_nothing(store_folder):
    clip = ClipStore(store_folder)[1]
    assert not clip.frames.flags.owndata and not clip.frames.flags.writeable


def test_a_shard_is_plain_safetensors(store_folder):
    tensors = load_file(store_folder / "shard-00000.safetensors")
    np.testing.assert_array_equal(tensors["frames"][1], make_clip(5, seed=1).frames)
    assert tensors["lengths"].tolist() == [5, 5, 5]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def replace_with_text(path):
    path.write_text("this is not a shard at all, but long enough to be read as a header length")


def remove(path):
    path.unlink()


def replace_with_other_tensors(path):
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros(3, np.float32)}, path)


@pytest.mark.parametrize(
    "damage", [truncate, replace_with_text, replace_with_other_tensors, lambda path: path.unlink()]
)
def test_a_damaged_shard_is_named_and_left_out_only_on_request(store_folder, damage):
    damage(store_folder / "shard-00000.safetensors")
    with pytest.raises(StoreError, match=r"shard-00000\.safetensors.*skip_damaged=True"):
        ClipStore(store_folder)
    store = ClipStore(store_folder, skip_damaged=True)
    assert len(store) == 1 and "shard-00000" in store.damaged[0]
    assert_same(make_clip(7, seed=9), store[0])


def test_a_shard_of_another_store_is_noticed_by_its_clip_count(store_folder):
    (store_folder / "shard-00000.safetensors").write_bytes((store_folder / "shard-00001.safetensors").read_bytes())
    with pytest.raises(StoreError, match="holds 1 clips where the manifest says 3"):
        ClipStore(store_folder)


def test_verify_finds_a_single_flipped_bit(store_folder):
    path = store_folder / "shard-00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    store = ClipStore(store_folder)
    with pytest.raises(StoreError, match="shard-00001"):
        store.verify()


def test_a_folder_without_manifest_is_no_store(tmp_path):
    with pytest.raises(StoreError, match=r"manifest\.json does not exist"):
        ClipStore(tmp_path)


@pytest.mark.parametrize("start, length", [(0, 6), (5, 1), (-1, 2), (0, 0)])
def test_a_window_outside_its_clip_is_refused(store_folder, start, length):
    with pytest.raises(IndexError, match="outside clip 0"):
        ClipStore(store_folder).window(0, start, length)


def test_clips_that_do_not_fit_together_are_refused(tmp_path):
    writer = ShardWriter(tmp_path / "shard")
    writer.add(make_clip(3))
    with pytest.raises(ValueError, match="another shard"):
        writer.add(make_clip(3, tasks=("other",)))
    with pytest.raises(ValueError, match="another shard"):
        writer.add(make_clip(3, pose=False))
