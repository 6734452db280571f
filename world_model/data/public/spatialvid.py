"""The layout of SpatialVID and SpatialVID-HQ (arXiv 2509.09676): a folder of annotations for each video.

As its dataset page shows::

    videos/group_0001/<id>.mp4
    annotations/group_0001/<id>/{caption.json, poses.npy, intrinsics.npy, indexes.txt, instructions.json, dyn_masks.npz}

``caption.json`` has a short ``SceneSummary`` and texts about the camera, which are left out: the action rows say that.

Assumed, because no page that could be seen says it: a row of ``poses.npy`` is tx, ty, tz, qx, qy, qz, qw of a
**world-to-camera** transform with OpenCV's axes (``--poses camera_to_world`` if it is not); poses are given for some
frames only, and the last whole number of line ``k`` of ``indexes.txt`` is the video frame of pose ``k``; without that
file the poses are spread evenly from the first to the last frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from world_model.data.public import captions
from world_model.data.public.arrays import load_arrays
from world_model.data.public.poses import PoseError, Trajectory, from_quaternions, inverse
from world_model.data.public.sources import SourceClip
from world_model.data.public.video import VideoFacts

LICENCE = "CC-BY-NC-SA-4.0"
SOURCE = "SpatialVID, data set SpatialVID/SpatialVID-HQ"
SCENE = ("SceneSummary", "SceneDesc", "SceneDescription")  # the first that is there
TAGS = ("weather", "timeOfDay", "lighting")  # of "CategoryTag"


def read(folder: Path, world_to_camera: bool = True) -> Iterator[SourceClip]:
    """The clips that have annotations, in the order of their names; ValueError if there are none."""
    places = sorted(path for path in folder.glob("annotations/*/*") if path.is_dir())
    if not places:
        raise ValueError(
            f"{folder} holds no annotations/<group>/<id>; give SpatialVID's folder with its groups unpacked"
        )
    for place in places:
        yield SourceClip(
            name=place.name,
            video=folder / "videos" / place.parent.name / f"{place.name}.mp4",
            poses=partial(read_poses, place, world_to_camera),
            captions=partial(read_captions, place / "caption.json"),
            source=SOURCE,
            licence=LICENCE,
            meta={"group": place.parent.name},
        )


def read_poses(place: Path, world_to_camera: bool, video: VideoFacts) -> Trajectory:
    """The trajectory of an annotation folder."""
    path, indexes = place / "poses.npy", place / "indexes.txt"
    rows = load_arrays(path).get("", np.empty(0))
    if rows.ndim != 2 or rows.shape[1] != 7:
        raise PoseError(path, None, f"poses have the shape {list(rows.shape)}, expected is [frames, 7]")
    cameras = from_quaternions(rows)
    frames = _frame_numbers(indexes) if indexes.is_file() else np.linspace(0, video.frames - 1, len(rows))
    return Trajectory(frames, inverse(cameras) if world_to_camera else cameras, path)


def _frame_numbers(path: Path) -> np.ndarray:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PoseError(path, None, "it is no text in UTF-8") from None
    lines = [re.findall(r"\d+", line) for line in text.splitlines() if line.strip()]
    for number, found in enumerate(lines):
        if not found:
            raise PoseError(path, None, f"line {number + 1} holds no frame number")
    return np.array([float(found[-1]) for found in lines])


def read_captions(path: Path) -> captions.Captions:
    """The scene that ``caption.json`` describes, with its tags for weather, time of day and light."""
    content = captions.load_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no object with {SCENE[0]}")
    tags = content.get("CategoryTag")
    tags = tags if isinstance(tags, dict) else {}
    summary = next((content[name] for name in SCENE if content.get(name)), None)
    return captions.always(captions.sentence([summary, *(tags.get(tag) for tag in TAGS)]), path)
