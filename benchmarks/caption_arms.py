"""Two worlds that differ in nothing but how their captions are written (for `benchmarks.captions`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from world_model.checkpoint import load_world, save_world
from world_model.config import to_json
from world_model.controls import StructuredCaption
from world_model.data.clips import Clip
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore, write_json
from world_model.text import field_texts
from world_model.training import checkpointing
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.checkpointing import Progress
from world_model.training.export import export
from world_model.training.latents import LatentStore
from world_model.training.loop import Budget, train
from world_model.world import World

HISTORY = 24  # latents of memory before those that are learned, at most: what the benchmark's rollouts grow to

Writing = Callable[[StructuredCaption], StructuredCaption]


def structured(caption: StructuredCaption) -> StructuredCaption:
    """As recorded: a text of its own for scene, character and event (Eq. 3)."""
    return caption


def mixed(caption: StructuredCaption) -> StructuredCaption:
    """All fields as one text in the published template, in the scene's place; the other fields say nothing."""
    return StructuredCaption(scene=caption.text())


STRUCTURED, MIXED = "structured", "mixed"
ARMS: dict[str, Writing] = {STRUCTURED: structured, MIXED: mixed}


def rewrite(clip: Clip, write: Writing) -> Clip:
    """The clip with other captions and all else the same."""
    return replace(clip, captions=tuple((first, write(caption)) for first, caption in clip.captions))


class RewrittenStore(ClipStore):
    """A store read with other captions than it holds."""

    def __init__(self, path: Path, write: Writing) -> None:
        super().__init__(path)
        self.write = write

    def __getitem__(self, index: int) -> Clip:
        return rewrite(super().__getitem__(index), self.write)

    def window(self, index: int, start: int, length: int) -> Clip:
        return rewrite(super().window(index, start, length), self.write)


def open_rewritten(paths: Sequence[Path], write: Writing) -> JoinedStore:
    """Recordings with other captions, read as one."""
    store = JoinedStore(paths)
    store.stores = [RewrittenStore(path, write) for path in paths]
    return store


def captions_of(store: ClipStore | JoinedStore) -> set[StructuredCaption]:
    """Every distinct caption of a store."""
    return {caption for index in range(len(store)) for _, caption in store[index].captions}


def check_captions(captions: Iterable[StructuredCaption], max_bytes: int, stride: int) -> None:
    """Refuse captions of which an arm would see only a part.

    Raises:
        ValueError: when ``max_bytes`` would cut a text or is no multiple of the caption encoder's ``stride``, or when
            a mixed caption does not tell its fields apart.
    """
    captions = list(captions)
    texts = [text for write in ARMS.values() for caption in captions for text in field_texts(write(caption))]
    longest = max((len(text.encode()) for text in texts), default=0)
    needed = -(-longest // stride) * stride
    if max_bytes < needed or max_bytes % stride:
        raise ValueError(
            f"--caption-bytes is {max_bytes} and the longest caption has {longest} bytes; "
            f"give a multiple of {stride} from {needed} on"
        )
    for caption in captions:
        if StructuredCaption.from_text(mixed(caption).scene) != caption:
            raise ValueError(
                f"the caption {caption.text()[:80]!r} holds the template's own sentence openings, so the mixed one "
                "would lose where a field ends; reword it and record anew"
            )


def starting_world(origin: World, max_bytes: int, seed: int) -> World:
    """Random weights that depend on ``seed`` alone in the sizes of ``origin``, with its codec, ready to be trained.

    ``max_bytes`` is the room for one caption text, and ``seed`` also decides what each training step draws.
    """
    config, curriculum = origin.config, origin.config.curriculum
    stage = replace(curriculum.autoregressive, history=HISTORY, growth_steps=0, seed=seed)
    config = replace(
        config,
        text=replace(config.text, max_bytes=max_bytes),
        curriculum=replace(curriculum, autoregressive=stage),
    )
    world = World.random(config, seed)
    world.codec.load_state_dict(origin.codec.state_dict())
    return world


@dataclass(frozen=True)
class Training:
    """All that the arms have in common."""

    start: World  # what both begin with
    data: tuple[Path, ...]  # recordings
    clips: int | None  # use only the first so many of each recording
    budget: Budget  # of each arm
    runs: Path  # holds a run folder for each arm and the encoded recordings, which the arms share


def train_arm(name: str, training: Training) -> Progress:
    """Train the arm ``name`` of `ARMS` by the autoregressive stage, then save its world in ``runs / name / "world"``.

    An unfinished run goes on where it stopped; a finished one is left as it is.

    Raises:
        ValueError: when the run began as something else.
        InterruptedError: when a signal ended the training before its budget.
    """
    run, budget = training.runs / name, training.budget
    _begin(run, training)
    progress = checkpointing.progress_of(run)
    if budget.used(progress) < 1:
        world = load_world(run / "start").requires_grad_(True)
        store = open_rewritten(training.data, ARMS[name])
        latents = LatentStore(store, world.codec, world.config, training.runs / "cache", training.clips)
        settings = world.config.curriculum.autoregressive
        stage = AutoregressiveStage(world, latents, settings)
        progress = train(stage.train(), run, settings, budget, to_json(world.config))
    if budget.used(progress) < 1:
        raise InterruptedError(
            f"the training of {run} was interrupted at step {progress.step}; the same command goes on from there"
        )
    export(run, run / "world")
    return progress


def _begin(run: Path, training: Training) -> None:
    """Keep what a run is of; a run that continues as something else would mix two."""
    wanted = {"captions": run.name, "recordings": JoinedStore(training.data).digest, "clips": training.clips}
    file = run / "run.json"
    if not file.is_file():
        save_world(training.start, run / "start", torch.float32)
        write_json(file, wanted)
    elif json.loads(file.read_text()) != wanted or not _same(load_world(run / "start"), training.start):
        raise ValueError(
            f"{run} began with other recordings or another --clips, --world, --seed or --caption-bytes; "
            "continue it with what it began with, or choose another --runs"
        )


def _same(one: World, other: World) -> bool:
    weights = other.state_dict()
    return one.config == other.config and all(torch.equal(v, weights[name]) for name, v in one.state_dict().items())
