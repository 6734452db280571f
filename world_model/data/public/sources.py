"""What a reader hands over: a video, and how to get its poses and captions when its turn comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from world_model.controls import FIRST_PERSON
from world_model.data.public.captions import Captions
from world_model.data.public.poses import Trajectory
from world_model.data.public.video import VideoFacts


@dataclass(frozen=True)
class SourceClip:
    """One clip of a public set. Both functions raise ValueError, in one sentence, for what they cannot read."""

    name: str  # unique in its set
    video: Path  # may be absent: public sets are often fetched in part
    poses: Callable[[VideoFacts], Trajectory]  # some sets give poses by the second or spread over the video
    captions: Callable[[], Captions]
    source: str  # where the clip comes from
    licence: str
    perspective: int = FIRST_PERSON
    meta: dict = field(default_factory=dict)  # JSON-able: what else the set says about the clip
