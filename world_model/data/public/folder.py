"""A plain folder of videos with camera poses, however they were made.

Beside ``walk.mp4`` (or mkv, mov, avi, webm, m4v, in any subfolder) lie

- ``walk.json``: its captions, see `captions`;
- its poses, the first of these that is there:
  ``walk.npz`` with ``camera_to_world`` or ``world_to_camera`` ``[N, 4, 4]`` (or ``[N, 3, 4]``), and ``frames`` ``[N]``,
  the video frames they belong to, unless there is one for every frame;
  ``walk.poses/``, a folder of such files that overlap, which are stitched (each then needs ``frames``);
  ``walk.txt``, lines of ``seconds tx ty tz qx qy qz qw`` camera to world, which most trackers write (the TUM format).

Axes are OpenCV's: x right, y down, z forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from world_model.controls import FIRST_PERSON
from world_model.data.public.arrays import load_arrays
from world_model.data.public.captions import read_captions
from world_model.data.public.poses import PoseError, Trajectory, from_quaternions, inverse, square
from world_model.data.public.sources import SourceClip
from world_model.data.public.stitching import stitch
from world_model.data.public.video import NAMES, VideoFacts

COLUMNS = 8  # of a TUM line


def read(folder: Path, licence: str, source: str = "", perspective: int = FIRST_PERSON) -> Iterator[SourceClip]:
    """All videos of a folder, in the order of their names; ValueError if there are none."""
    videos = sorted(path for path in folder.rglob("*") if path.suffix.lower() in NAMES)
    if not videos:
        raise ValueError(f"{folder} holds no videos ({', '.join(NAMES)})")
    if not licence:
        raise ValueError("a folder of videos does not tell under which licence it may be used; say it with --licence")
    for video in videos:
        yield SourceClip(
            name=video.relative_to(folder).with_suffix("").as_posix(),
            video=video,
            poses=partial(read_poses, video),
            captions=partial(read_captions, video.with_suffix(".json")),
            source=source or f"folder {folder.name}",
            licence=licence,
            perspective=perspective,
        )


def read_poses(video: Path, facts: VideoFacts) -> Trajectory:
    """The trajectory that lies beside a video."""
    matrices, pieces, lines = (video.with_suffix(suffix) for suffix in (".npz", ".poses", ".txt"))
    if matrices.is_file():
        return _from_matrices(matrices)
    if pieces.is_dir():
        found = [_from_matrices(piece, needs_frames=True) for piece in sorted(pieces.glob("*.npz"))]
        if not found:
            raise PoseError(pieces, None, "the folder holds no pieces of a trajectory")
        return stitch(found)
    if lines.is_file():
        return _from_lines(lines, facts.frame_rate)
    raise PoseError(video, None, f"it has no poses beside it ({matrices.name}, {pieces.name}/ or {lines.name})")


def _from_matrices(path: Path, needs_frames: bool = False) -> Trajectory:
    arrays = load_arrays(path)
    known = [name for name in ("camera_to_world", "world_to_camera") if name in arrays]
    if not known:
        raise PoseError(path, None, "it holds neither camera_to_world nor world_to_camera")
    if len(known) > 1:
        raise PoseError(path, None, "it holds camera_to_world and world_to_camera; leave one out")
    if needs_frames and "frames" not in arrays:
        raise PoseError(path, None, "a piece of a trajectory must say with frames which video frames it is for")
    cameras = square(arrays[known[0]])
    if known[0] == "world_to_camera" and cameras.shape[1:] == (4, 4):
        cameras = inverse(cameras)
    frames = np.asarray(arrays.get("frames", np.arange(len(cameras))), np.float64)
    return Trajectory(frames, cameras, path)


def _from_lines(path: Path, frame_rate: float) -> Trajectory:
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise PoseError(path, None, "it is no text in UTF-8") from None
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            try:
                rows.append([float(word) for word in line.replace(",", " ").split()])
            except ValueError:
                raise PoseError(path, None, f"line {number} is not made of numbers") from None
            if len(rows[-1]) != COLUMNS:
                raise PoseError(path, None, f"line {number} has {len(rows[-1])} numbers instead of {COLUMNS}")
    table = np.array(rows).reshape(-1, COLUMNS)
    return Trajectory(np.round(table[:, 0] * frame_rate, 3), from_quaternions(table[:, 1:]), path)
