"""Clips on disk: safetensors shards that open memory-mapped, and a manifest that tells what belongs together.

A store is a folder with ``manifest.json`` and ``shard-00000.safetensors``, ... A shard holds ``N`` clips padded
to its longest one: ``frames`` uint8 ``[N, T, H, W, 3]``, ``actions`` float32 ``[N, T, 6]``, ``lengths`` int64
``[N]`` and, where known, ``pose`` float32 ``[N, T, 5]``, ``rewards`` float32 ``[N, T, K]`` and ``terminated`` uint8
``[N, T, K]``; captions, sources and everything else JSON-able lie in the header. Reading a window touches the
pages of that window only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from world_model.controls import StructuredCaption
from world_model.data.clips import Clip

MANIFEST = "manifest.json"
FORMAT = "worldplay2-clips-1"
DTYPES = {"U8": np.dtype(np.uint8), "F32": np.dtype(np.float32), "I64": np.dtype(np.int64)}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
LONGEST_HEADER = 100_000_000  # bytes; the safetensors format's own limit


class StoreError(ValueError):
    """A store or shard that cannot be read; the message names the file and the remedy."""


@dataclass(frozen=True)
class ShardEntry:
    """What the manifest says about one shard file."""

    file: str
    clips: int
    frames: int  # of all its clips together, padding not counted
    bytes: int
    sha256: str


def sha256_of(path: Path) -> str:
    """The hexadecimal SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)


def _digest(file) -> str:
    """`hashlib.file_digest`, which Python 3.10 does not have."""
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def write_json(path: Path, content: dict) -> None:
    """Write JSON under a temporary name and rename it, so that readers never see half a file."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content, indent=1))
    os.replace(temporary, path)


def write_manifest(folder: Path, entries: Iterable[ShardEntry], recipe: dict | None = None) -> None:
    """Write a store's manifest; ``recipe`` is whatever made the clips (JSON-able)."""
    shards = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.file)]
    write_json(Path(folder) / MANIFEST, {"format": FORMAT, "recipe": recipe or {}, "shards": shards})


def read_manifest(folder: Path) -> tuple[list[ShardEntry], dict]:
    """The shard entries and the recipe of a store; `StoreError` if there is no readable manifest."""
    path = Path(folder) / MANIFEST
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise StoreError(f"{path} has format {content['format']!r}, not {FORMAT!r}; record or convert it anew")
        return [ShardEntry(**shard) for shard in content["shards"]], content["recipe"]
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist; {folder} is no clip store, or its recording never began") from None
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise StoreError(f"{path} is not a clip store's manifest ({error}); restore it or record anew") from error


def save_clips(path: Path, clips: list[Clip]) -> None:
    """Write clips as one shard file, under a temporary name that is then renamed.

    The file is plain safetensors, written piece by piece: no padded copy of all frames, and no wait for the disk
    (what a power cut leaves behind has the wrong size, which reading notices).
    """
    columns = _columns(clips)
    longest = max(len(clip.frames) for clip in clips)
    header: dict[str, dict] = {"__metadata__": _metadata(clips)}
    offset = 0
    for name, pieces in columns.items():
        rows = [longest] if pieces[0].ndim else []
        shape = [len(clips), *rows, *pieces[0].shape[1:]]
        size = int(np.prod(shape)) * pieces[0].itemsize
        header[name] = {"dtype": DTYPE_NAMES[pieces[0].dtype], "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data so
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for pieces in columns.values():
            for piece in pieces:
                file.write(np.ascontiguousarray(piece).data)
                missing = (longest - len(piece)) * piece[0].nbytes if piece.ndim else 0
                file.write(bytes(missing))
    os.replace(temporary, path)


def _columns(clips: list[Clip]) -> dict[str, list[np.ndarray]]:
    """The shard's tensors as one piece per clip, widest element first so that all data is aligned."""
    first = clips[0]
    columns = {"lengths": [np.array(len(clip.frames), np.int64) for clip in clips]}
    columns["actions"] = [np.asarray(clip.actions, np.float32) for clip in clips]
    if first.pose is not None:
        columns["pose"] = [np.asarray(clip.pose, np.float32) for clip in clips]
    if first.rewards:
        columns["rewards"] = [_by_frame(clip.rewards, np.float32) for clip in clips]
        columns["terminated"] = [_by_frame(clip.terminated, np.uint8) for clip in clips]
    columns["frames"] = [np.asarray(clip.frames, np.uint8) for clip in clips]
    return columns


def _by_frame(columns: dict[str, np.ndarray], dtype: type) -> np.ndarray:
    return np.stack([np.asarray(column, dtype) for column in columns.values()], axis=-1)


def _metadata(clips: list[Clip]) -> dict[str, str]:
    notes = [
        {
            "captions": [[start, caption.as_dict()] for start, caption in clip.captions],
            "source": clip.source,
            "licence": clip.licence,
            "meta": clip.meta,
        }
        for clip in clips
    ]
    return {"format": FORMAT, "tasks": json.dumps(list(clips[0].rewards)), "clips": json.dumps(notes)}


class ShardWriter:
    """Collects clips of one frame size and writes them as a shard file."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.clips: list[Clip] = []

    def add(self, clip: Clip) -> None:
        """Append a clip; its frame size and task names must be those of the first one."""
        first = self.clips[0] if self.clips else clip
        if clip.frames.shape[1:] != first.frames.shape[1:] or list(clip.rewards) != list(first.rewards):
            raise ValueError(
                f"clip with frames {clip.frames.shape[1:]} and tasks {list(clip.rewards)} does not fit the shard's "
                f"{first.frames.shape[1:]} and {list(first.rewards)}; write it to another shard"
            )
        if (clip.pose is None) != (first.pose is None):
            raise ValueError("a shard's clips all have a pose or none has; write this clip to another shard")
        self.clips.append(clip)

    def close(self) -> ShardEntry:
        """Write the file and return its manifest entry."""
        if not self.clips:
            raise ValueError(f"{self.path.name} would hold no clips; add at least one before closing it")
        save_clips(self.path, self.clips)
        frames = sum(len(clip.frames) for clip in self.clips)
        digest = sha256_of(self.path)
        return ShardEntry(self.path.name, len(self.clips), frames, self.path.stat().st_size, digest)


class Shard:
    """One memory-mapped shard file; `StoreError` if it is truncated or not a shard."""

    def __init__(self, path: Path):
        self.path = Path(path)
        header, start = self._header()
        try:
            metadata = header.pop("__metadata__")
            if metadata["format"] != FORMAT:
                raise KeyError("format")
            self.tasks: list[str] = json.loads(metadata["tasks"])
            self.notes: list[dict] = json.loads(metadata["clips"])
            end = start + max(tensor["data_offsets"][1] for tensor in header.values())
        except (KeyError, TypeError, ValueError, AttributeError):
            raise StoreError(f"{self.path} is not a shard of clips; move it out of the store") from None
        size = self.path.stat().st_size
        if size != end:
            raise StoreError(f"{self.path} has {size} bytes instead of {end}; it is damaged, delete and record it anew")
        buffer = np.memmap(self.path, dtype=np.uint8, mode="r").view(np.ndarray)
        self.tensors = {
            name: buffer[start + tensor["data_offsets"][0] : start + tensor["data_offsets"][1]]
            .view(DTYPES[tensor["dtype"]])
            .reshape(tensor["shape"])
            for name, tensor in header.items()
        }
        self.lengths = self.tensors["lengths"].tolist()

    def _header(self) -> tuple[dict, int]:
        try:
            with open(self.path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if not 2 <= length <= min(LONGEST_HEADER, self.path.stat().st_size):
                    raise ValueError(length)
                return dict(json.loads(file.read(length))), 8 + length
        except FileNotFoundError:
            raise StoreError(f"{self.path} is missing; restore it or record it anew") from None
        except ValueError:
            raise StoreError(f"{self.path} has no shard header; it is damaged or foreign, replace it") from None

    def window(self, clip: int, start: int, length: int) -> Clip:
        """Frames ``start .. start + length`` of a clip as views; captions and times count from the window."""
        stop = start + length

        def cut(name: str) -> np.ndarray | None:
            return self.tensors[name][clip, start:stop] if name in self.tensors else None

        def by_task(name: str, dtype: type) -> dict[str, np.ndarray]:
            table = cut(name)
            return {} if table is None else {task: table[:, k].view(dtype) for k, task in enumerate(self.tasks)}

        notes = self.notes[clip]
        captions = [(int(at), StructuredCaption(**fields)) for at, fields in notes["captions"]]
        in_force = max(index for index, (at, _) in enumerate(captions) if at <= start)
        return Clip(
            frames=cut("frames"),
            actions=cut("actions"),
            captions=tuple((max(at - start, 0), caption) for at, caption in captions[in_force:] if at < stop),
            pose=cut("pose"),
            rewards=by_task("rewards", np.float32),
            terminated=by_task("terminated", np.bool_),
            source=notes["source"],
            licence=notes["licence"],
            meta=notes["meta"],
        )


class ClipStore:
    """A folder of shards, read at random: ``store[i]`` is a whole clip, `window` a part of one, both as views.

    Opening checks every shard's size and header. A missing, truncated or foreign shard raises `StoreError` with its
    name and the remedy, or is left out (and listed in ``damaged``) with ``skip_damaged=True``.
    """

    def __init__(self, path: Path | str, skip_damaged: bool = False):
        self.path = Path(path)
        self.entries, self.recipe = read_manifest(self.path)
        self.shards: list[Shard] = []
        self.damaged: list[str] = []
        for entry in self.entries:
            try:
                self.shards.append(self._open(entry))
            except StoreError as error:
                if not skip_damaged:
                    raise StoreError(f"{error} (or open the store with skip_damaged=True)") from None
                self.damaged.append(str(error))
        self._places = [(shard, clip) for shard in self.shards for clip in range(len(shard.lengths))]

    def _open(self, entry: ShardEntry) -> Shard:
        shard = Shard(self.path / entry.file)
        if len(shard.lengths) != entry.clips:
            raise StoreError(
                f"{shard.path} holds {len(shard.lengths)} clips where the manifest says {entry.clips}; it belongs to "
                "another store, replace it or record it anew"
            )
        return shard

    def __len__(self) -> int:
        return len(self._places)

    def _place(self, index: int) -> tuple[Shard, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"clip {index} is outside this store of {len(self)} clips")
        return self._places[index]

    def __getitem__(self, index: int) -> Clip:
        shard, clip = self._place(index)
        return shard.window(clip, 0, shard.lengths[clip])

    def length(self, index: int) -> int:
        """The number of frames of a clip, without touching them."""
        shard, clip = self._place(index)
        return shard.lengths[clip]

    def window(self, index: int, start: int, length: int) -> Clip:
        """``length`` frames of clip ``index`` from ``start`` on. Row 0 of the window's actions is the recorded one,
        not idle: it led to the window's first frame from the frame before."""
        shard, clip = self._place(index)
        if start < 0 or length < 1 or start + length > shard.lengths[clip]:
            end = shard.lengths[clip]
            raise IndexError(f"window {start}..{start + length} is outside clip {index}, which has {end} frames")
        return shard.window(clip, start, length)

    def verify(self) -> None:
        """Compare every shard's checksum with the manifest (reads all bytes).

        Raises `StoreError` with the name of the first that differs.
        """
        for entry in self.entries:
            path = self.path / entry.file
            if path.exists() and sha256_of(path) == entry.sha256:
                continue
            raise StoreError(f"{path} does not match its checksum in {MANIFEST}; delete it and record it anew")
