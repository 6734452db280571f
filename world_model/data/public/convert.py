"""Source clips into a `ClipStore`: read, resample, decompose, measure, refuse or keep, and note everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from math import ceil
from pathlib import Path

import numpy as np

from world_model.controls import PERSPECTIVE, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.public import manifest, video
from world_model.data.public.actions import ActionThresholds, action_rows, ground_poses
from world_model.data.public.captions import Captions
from world_model.data.public.quality import QualityLimits, faults, motion_measures, picture_measures
from world_model.data.public.sources import SourceClip
from world_model.data.store import MANIFEST, ClipStore, ShardEntry, ShardWriter, write_manifest


@dataclass(frozen=True)
class ImportSettings:
    """How source clips become clips of a world."""

    height: int = 64
    width: int = 64
    frame_rate: float = 35 / 4  # frames, and so action rows, per second: the world's, see `VideoConfig`
    shortest: int = 24  # frames; shorter clips and remainders are left out
    longest: int = 600  # frames; longer clips are cut into parts
    shard_bytes: int = 256_000_000  # of frames, after which a shard is closed
    actions: ActionThresholds = field(default_factory=ActionThresholds)
    quality: QualityLimits = field(default_factory=QualityLimits)

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 8 or self.height % 8 or self.width % 8:
            raise ValueError(f"the size {self.height}x{self.width} must be made of multiples of 8")
        if not 0 < self.frame_rate <= 120:
            raise ValueError(f"{self.frame_rate:g} frames a second are impossible, allowed are up to 120")
        if not 2 <= self.shortest <= self.longest:
            raise ValueError(f"clips of {self.shortest} to {self.longest} frames are impossible; 2 is the least")


@dataclass
class Outcome:
    """Counts of one import, by clips of the store and parts of the source."""

    kept: int = 0
    refused: int = 0  # by the quality limits, or too short
    broken: int = 0  # could not be read
    absent: int = 0  # the video is not there


def convert(
    clips: Iterable[SourceClip],
    out: Path,
    settings: ImportSettings | None = None,
    skip_broken: bool = False,
    recipe: dict | None = None,
) -> tuple[ClipStore, Outcome]:
    """Write what is good of ``clips`` to the folder ``out`` and open it as a store.

    A clip that cannot be read ends the import with its ValueError; with ``skip_broken`` it is noted in the manifest
    of clips and left out. Clips without a video are always left out, and noted. Raises ValueError too if the folder
    holds a store already or nothing is kept.
    """
    settings, out, outcome = settings or ImportSettings(), Path(out), Outcome()
    if (out / MANIFEST).exists():
        raise ValueError(f"{out} holds clips already; choose another folder")
    (out / manifest.FILE).unlink(missing_ok=True)  # of an import that did not end
    shelf = _Shelf(out, settings.shard_bytes, {**(recipe or {}), "settings": asdict(settings)})
    for clip in clips:
        if not clip.video.is_file():
            outcome.absent += 1
            shelf.note(clip, refused=("the video is not there",))
            continue
        try:
            for part in parts(clip, settings):
                outcome.kept += not part.faults
                outcome.refused += bool(part.faults)
                shelf.put(clip, part)
        except ValueError as error:
            if not skip_broken:
                raise
            outcome.broken += 1
            shelf.note(clip, refused=(str(error),))
    if not outcome.kept:
        raise ValueError(
            f"nothing was kept: {outcome.refused} parts refused, {outcome.broken} clips broken, {outcome.absent} "
            f"without their video; {out / manifest.FILE} tells why"
        )
    shelf.finish()
    return ClipStore(out), outcome


@dataclass(frozen=True)
class Part:
    """A stretch of a source clip, ready to be stored, and what is wrong with it."""

    clip: Clip
    first_frame: int  # of the source video
    last_frame: int
    measures: dict[str, float]
    faults: tuple[str, ...]


def parts(source: SourceClip, settings: ImportSettings) -> Iterator[Part]:
    """Cut one source clip into parts, each with one action row per frame.

    Poses are taken at exactly the video frames that are kept; the vertical and the usual step are those of the whole
    source clip, so that all its parts mean the same by a movement.
    """
    facts = video.facts(source.video)
    trajectory, captions = source.poses(facts), source.captions()
    trajectory.reach(facts.frames - 1)
    first, last = ceil(trajectory.frames[0]), min(facts.frames - 1, int(trajectory.frames[-1]))
    numbers = video.sampled(facts, first, last, settings.frame_rate, source.video)
    poses = ground_poses(trajectory.at(numbers.astype(np.float64)))
    rows = action_rows(poses, settings.actions, source.perspective)
    said = _by_frame(captions, numbers / facts.frame_rate)
    stretches = [(a, min(a + settings.longest, len(numbers))) for a in range(0, len(numbers), settings.longest)]
    pictures = video.read_frames(source.video, numbers, (settings.height, settings.width))
    for start, end in stretches:
        if start and end - start < settings.shortest:
            return
        clip = Clip(
            frames=np.stack(list(islice(pictures, end - start))),
            actions=_idle_first(rows[start:end]),
            captions=_changes(said[start:end]),
            pose=poses[start:end].astype(np.float32),
            source=f"{source.source}: {source.name}",
            licence=source.licence,
            meta=source.meta,
        )
        measures, wrong = _judge(clip, settings)
        yield Part(clip, int(numbers[start]), int(numbers[end - 1]), measures, tuple(wrong))


def _judge(clip: Clip, settings: ImportSettings) -> tuple[dict[str, float], list[str]]:
    if len(clip.frames) < settings.shortest:
        return {}, [f"it has {len(clip.frames)} frames, at least {settings.shortest} are asked for"]
    measures = motion_measures(clip.pose, clip.actions, settings.quality) | picture_measures(clip.frames)
    return measures, faults(measures, settings.quality)


def _idle_first(rows: np.ndarray) -> np.ndarray:
    """Rows whose first is idle: what led to the first frame lies outside."""
    rows = rows.copy()
    rows[0, [column for column in range(rows.shape[1]) if column != PERSPECTIVE]] = 0
    return rows


def _by_frame(captions: Captions, seconds: np.ndarray) -> list[StructuredCaption]:
    """The caption in force at every frame."""
    return [next(caption for start, caption in reversed(captions) if start <= max(t, 0.0)) for t in seconds]


def _changes(said: list[StructuredCaption]) -> tuple[tuple[int, StructuredCaption], ...]:
    """Captions frame by frame as captions with the frame at which each begins."""
    return tuple((t, now) for t, now in enumerate(said) if t == 0 or now != said[t - 1])


class _Shelf:
    """Collects kept clips into shards of bounded size and writes both manifests."""

    def __init__(self, out: Path, shard_bytes: int, recipe: dict):
        self.out, self.shard_bytes, self.recipe = out, shard_bytes, recipe
        self.entries: list[ShardEntry] = []
        self.waiting: list[Clip] = []
        self.stored = 0

    def put(self, source: SourceClip, part: Part) -> None:
        index = None if part.faults else self.stored
        self.note(source, part.first_frame, part.last_frame, index, part.faults, part.measures)
        if part.faults:
            return
        self.stored += 1
        self.waiting.append(part.clip)
        if sum(clip.frames.nbytes for clip in self.waiting) >= self.shard_bytes:
            self._write()

    def note(self, source: SourceClip, first=None, last=None, index=None, refused=(), measures=None) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        record = manifest.ClipRecord(
            source.name, str(source.video), source.source, source.licence, first, last, index, refused, measures or {}
        )
        manifest.append(self.out, record)

    def finish(self) -> None:
        """Write what is waiting, and the manifest: from then on the folder is a store."""
        if self.waiting:
            self._write()
        write_manifest(self.out, self.entries, self.recipe)

    def _write(self) -> None:
        writer = ShardWriter(self.out / f"shard-{len(self.entries):05d}.safetensors")
        for clip in self.waiting:
            writer.add(clip)
        self.entries.append(writer.close())
        self.waiting = []
