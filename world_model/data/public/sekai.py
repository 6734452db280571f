"""The layout of Sekai (arXiv 2506.15675): tables of clips, one video and one camera file for each.

As its repository and dataset pages tell: CSV tables (``train/sekai-real-walking-hq.csv``, ``sekai-game-walking.csv``,
...) with the columns ``videoFile``, ``cameraFile``, ``caption``, ``location``, ``scene``, ``weather``, ``timeOfDay``
and ``crowdDensity``; camera trajectories as an intrinsic matrix and one extrinsic matrix per video frame, in ``.npz``.

Assumed, because no page that could be seen says it: the extrinsic matrices are ``[N, 4, 4]`` or ``[N, 3, 4]``
camera-to-world with OpenCV's axes under one of the keys `CAMERAS` (``--poses world_to_camera`` if they are not);
files lie where the table says, from its own folder or the set's, or else anywhere in the set, and are then found by
name; without ``cameraFile`` the camera file is called like the
video; a folder of that name holds pieces ``<first frame>.npz`` (digits before the first ``_``) that overlap.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from world_model.data.public import captions
from world_model.data.public.arrays import load_arrays
from world_model.data.public.poses import PoseError, Trajectory, inverse, square
from world_model.data.public.sources import SourceClip
from world_model.data.public.stitching import stitch
from world_model.data.public.video import NAMES, VideoFacts

LICENCE = "Sekai licence (non-commercial research); the videos belong to their makers"
SOURCE = "Sekai, data set Lixsp11/Sekai-Project"
CAMERAS = ("extrinsic", "extrinsics", "cam_c2w")
SCENE = ("caption", "scene", "location", "weather", "timeOfDay")


def read(folder: Path, world_to_camera: bool = False) -> Iterator[SourceClip]:
    """The clips of all tables in a folder, in their order; ValueError if there is no table."""
    tables = [path for path in sorted(folder.rglob("*.csv")) if "videoFile" in _columns(path)]
    if not tables:
        raise ValueError(f"{folder} holds no table with the column videoFile; give Sekai's folder with its .csv files")
    files = _Files(folder)
    seen: set[str] = set()
    for table in tables:
        for row in _lines(table, csv.DictReader):
            if row["videoFile"] not in seen:
                seen.add(row["videoFile"])
                yield _clip(row, table, files, world_to_camera)


class _Files:
    """The videos, camera files and folders of a set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.named: dict[str, list[Path]] = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".npz", *NAMES) or path.is_dir():
                self.named.setdefault(path.name, []).append(path)

    def find(self, told: Path, table: Path) -> Path | None:
        """The file that a table means; None if there is none, ValueError if it could be one of several."""
        for place in (table.parent / told, self.folder / told):
            if place.exists():
                return place
        found = self.named.get(told.name, [])
        if len(found) > 1:
            places = ", ".join(map(str, found[:2]))
            raise ValueError(f"{table}: {told} may be one of {len(found)} files ({places}); say in the table which")
        return found[0] if found else None


def _columns(path: Path) -> list[str]:
    return next(_lines(path, csv.reader), [])


def _lines(path: Path, reader: Callable[[TextIO], Iterable[Any]]) -> Iterator[Any]:
    """What a reader of CSV makes of a file; ValueError, with its name, if that cannot be read."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as lines:
            yield from reader(lines)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no table in UTF-8 ({error}); save it anew") from None


def _clip(row: dict[str, str], table: Path, files: _Files, world_to_camera: bool) -> SourceClip:
    video = Path(row["videoFile"])
    camera = Path(row.get("cameraFile") or video.with_suffix(".npz"))
    place = files.find(camera, table) or files.find(camera.with_suffix(""), table) or table.parent / camera
    scene = captions.sentence(row.get(column) for column in SCENE)
    return SourceClip(
        name=video.with_suffix("").as_posix(),
        video=files.find(video, table) or table.parent / video,
        poses=partial(read_poses, place, world_to_camera),
        captions=partial(captions.always, scene, f"{table}, {video.name}"),
        source=SOURCE,
        licence=LICENCE,
        meta={"table": table.name, "crowd": row.get("crowdDensity") or ""},
    )


def read_poses(path: Path, world_to_camera: bool, video: VideoFacts | None = None) -> Trajectory:
    """The trajectory of a camera file, or of a folder of pieces of one; one pose per video frame."""
    if path.is_dir():
        pieces = sorted(path.glob("*.npz"))
        if not pieces:
            raise PoseError(path, None, "the folder holds no pieces of a trajectory")
        return stitch([_piece(piece, _first_frame(piece), world_to_camera) for piece in pieces])
    return _piece(path, 0, world_to_camera)


def _first_frame(piece: Path) -> int:
    number = piece.stem.split("_")[0]
    if not number.isdecimal():
        raise PoseError(piece, None, "the name of a piece must begin with the number of its first frame")
    return int(number)


def _piece(path: Path, first: int, world_to_camera: bool) -> Trajectory:
    arrays = load_arrays(path)
    name = next((name for name in CAMERAS if name in arrays), None)
    if name is None:
        raise PoseError(path, None, f"it holds none of {', '.join(CAMERAS)}")
    cameras = square(arrays[name])
    frames = first + np.arange(len(cameras), dtype=np.float64)
    turned = inverse(cameras) if world_to_camera and cameras.shape[1:] == (4, 4) else cameras
    return Trajectory(frames, turned, path)
