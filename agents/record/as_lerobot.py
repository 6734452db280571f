"""Episodes as a LeRobot dataset, format v3.0, which ``lerobot.datasets.lerobot_dataset.LeRobotDataset`` opens.

Written here with pyarrow and not by LeRobot's own writer, since that package pins older versions of torch than ours.
Pictures are PNG in the tables, kept to the last bit. A row is one step: the frame that was seen, the action row that
followed, and reward and end that came of it; the very last frame of an episode, which no action followed, has none.
``task`` is the caption in force, as one text. ``meta/provenance.json`` tells what made the episodes.

>>> LeRobotDataset("worldplay2/walks", root="data/walks")   # doctest: +SKIP
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from agents.record.plan import Plan
from agents.record.table_stats import Moments
from world_model.controls import ACTION_COLUMNS, ACTION_DIM
from world_model.data.clips import Clip

VERSION = "v3.0"
FILE_BYTES, FILES_PER_CHUNK = 100 * 2**20, 1000
CHUNK_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
DATA_PATH = f"data/{CHUNK_FILE}.parquet"
IMAGE = "observation.image"
SCALARS = {
    "next.reward": "float32",
    "next.done": "bool",
    "next.success": "bool",
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


def check(name: str, plan: Plan) -> None:
    """Refuse a machine without pyarrow.

    Raises:
        ImportError: where it is not installed.
    """
    import pyarrow  # noqa: F401


def write(folder: Path, clips: Iterable[Clip], name: str, about: dict) -> None:
    """Fill ``folder`` with ``data`` and ``meta``; ``about`` is the provenance."""
    writer = _Writer(folder)
    for clip in clips:
        writer.add(clip)
    writer.close()
    (folder / "meta" / "provenance.json").write_text(json.dumps({"name": name, **about}, indent=1))


class _Writer:
    """Collects the tables of a dataset; the frames go to disk episode by episode."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tasks: dict[str, int] = {}  # text -> index
        self.episodes: list[dict] = []
        self.total = Moments()
        self.features: dict[str, dict] = {}
        self.fps = 0
        self.file, self.bytes, self.steps = 0, 0, 0
        self._data = None

    def add(self, clip: Clip) -> None:
        """Append an episode."""
        if not self.features:
            self.features, self.fps = _features(clip.frames.shape[1:]), clip.meta["steps_per_second"]
        columns = self._columns(clip)
        pictures = clip.frames[:-1]
        encoded = [_png(picture) for picture in pictures]
        self._write(columns, encoded)
        moments = Moments()
        moments.add({**columns, IMAGE: pictures})
        self.total.add({**columns, IMAGE: pictures})
        texts = list(self.tasks)
        self.episodes.append(
            {
                "episode_index": len(self.episodes),
                "tasks": [texts[index] for index in dict.fromkeys(columns["task_index"].tolist())],
                "length": len(pictures),
                "dataset_from_index": self.steps,
                "dataset_to_index": self.steps + len(pictures),
                **_place("data", self.file),
                **_place("meta/episodes", 0),
                **{
                    f"stats/{of}/{what}": value for of, stats in moments.told().items() for what, value in stats.items()
                },
            }
        )
        self.steps += len(pictures)

    def close(self) -> None:
        """Finish the data and write what describes it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._data.close()
        meta = self.folder / "meta"
        (meta / "episodes" / "chunk-000").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(self.episodes), meta / "episodes" / "chunk-000" / "file-000.parquet")
        pq.write_table(_task_table(self.tasks), meta / "tasks.parquet")
        (meta / "stats.json").write_text(json.dumps(self.total.told(), indent=1))
        (meta / "info.json").write_text(json.dumps(self._info(), indent=1))

    def _columns(self, clip: Clip) -> dict[str, np.ndarray]:
        """All columns of an episode but the pictures."""
        ((rewards, _),) = zip(clip.rewards.values(), clip.terminated.values(), strict=True)
        steps = np.arange(len(clip.frames) - 1)
        done = steps == steps[-1]
        texts = [clip.caption_at(step).text() for step in steps.tolist()]
        return {
            "action": clip.actions[1:],
            "next.reward": rewards[1:],
            "next.done": done,
            "next.success": done & bool(clip.meta["success"]),
            "timestamp": (steps / self.fps).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.full(len(steps), len(self.episodes)),
            "index": self.steps + steps,
            "task_index": np.array([self.tasks.setdefault(text, len(self.tasks)) for text in texts]),
        }

    def _write(self, columns: dict[str, np.ndarray], pictures: list[bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        size = sum(map(len, pictures))
        if self._data is None or self.bytes + size > FILE_BYTES:
            if self._data is not None:
                self._data.close()
                self.file, self.bytes = self.file + 1, 0
            path = self.folder / DATA_PATH.format(**_indices(self.file))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._data = pq.ParquetWriter(path, _schema())
        self.bytes += size
        content = {IMAGE: [{"bytes": picture, "path": None} for picture in pictures]}
        content |= {name: list(column) if column.ndim > 1 else column for name, column in columns.items()}
        self._data.write_table(pa.table(content, schema=_schema()))

    def _info(self) -> dict:
        return {
            "codebase_version": VERSION,
            "robot_type": "worldplay2-gym",
            "total_episodes": len(self.episodes),
            "total_frames": self.steps,
            "total_tasks": len(self.tasks),
            "chunks_size": FILES_PER_CHUNK,
            "data_files_size_in_mb": FILE_BYTES // 2**20,
            "video_files_size_in_mb": FILE_BYTES // 2**20,
            "fps": self.fps,
            "splits": {"train": f"0:{len(self.episodes)}"},
            "data_path": DATA_PATH,
            "video_path": None,
            "features": self.features,
        }


def _features(picture: tuple[int, ...]) -> dict[str, dict]:
    scalars = {name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in SCALARS.items()}
    return {
        IMAGE: {"dtype": "image", "shape": list(picture), "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": [ACTION_DIM], "names": list(ACTION_COLUMNS)},
        **scalars,
    }


def _schema():
    import pyarrow as pa

    kinds = {"float32": pa.float32(), "bool": pa.bool_(), "int64": pa.int64()}
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    scalars = [(name, kinds[dtype]) for name, dtype in SCALARS.items()]
    return pa.schema([(IMAGE, image), ("action", pa.list_(pa.float32(), ACTION_DIM)), *scalars])


def _task_table(tasks: dict[str, int]):
    """The texts as the index of a pandas table, written without pandas."""
    import pyarrow as pa

    index = "__index_level_0__"
    column = {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"}
    level = {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object"}
    columns = [{**one, "metadata": None} for one in (column, level)]
    told = {"index_columns": [index], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    table = pa.table({"task_index": pa.array(list(tasks.values()), pa.int64()), index: list(tasks)})
    return table.replace_schema_metadata({"pandas": json.dumps(told)})


def _indices(file: int) -> dict[str, int]:
    return {"chunk_index": file // FILES_PER_CHUNK, "file_index": file % FILES_PER_CHUNK}


def _place(what: str, file: int) -> dict[str, int]:
    return {f"{what}/{name}": number for name, number in _indices(file).items()}


def _png(picture: np.ndarray) -> bytes:
    return cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))[1].tobytes()
