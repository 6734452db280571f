"""One stage in one run folder: what the run is of, the world that it starts from, and its training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from world_model.checkpoint import find_world, is_large
from world_model.config import WorldConfig, to_json, with_settings
from world_model.data.joined import JoinedStore
from world_model.data.store import write_json
from world_model.training.checkpointing import Progress
from world_model.training.clip_scores import check_teacher
from world_model.training.loop import Budget, train
from world_model.training.processes import joined
from world_model.training.stage import Stage
from world_model.training.stages import (
    CODEC_STAGES,
    FORCING_STAGES,
    LARGE_STAGES,
    STAGES,
    STARTS,
    TEACHERS,
    check_expert,
    check_large_stage,
)
from world_model.training.worlds import (
    AnyWorld,
    encoded,
    experts_of,
    open_world,
    save,
    share_captions,
    with_present_settings,
)
from world_model.world import World


@dataclass(frozen=True)
class StageRun:
    """What one stage trains on, what it starts from and where it is kept."""

    stage: str  # one of `stages.STAGES`
    data: tuple[Path, ...]  # recordings
    out: Path  # run folder; a run that is there already is continued
    cache: Path  # folder of the encoded recordings
    start: str | None = None  # world or run that the stage starts from; None: random weights
    expert: str | None = None  # which of two experts of a large world the stage trains; None: all that there are
    teacher: str | None = None  # world or run whose scores the stage follows, for those that have a teacher
    preset: str = "doom"  # sizes of the random weights
    seed: int = 0  # of the random weights
    settings: tuple[str, ...] = ()  # of the curriculum, other than the preset's; see `config.with_settings`
    clips: int | None = None  # use only the first so many clips of each recording
    device: str | None = None  # cpu or cuda; None: the best there is


def run_stage(run: StageRun, budget: Budget) -> Progress:
    """Train until the budget is used or a signal asks to stop; the newest checkpoint in ``run.out`` is the result.

    Raises:
        ValueError: when the folder is another run, or recordings and world do not fit together.
    """
    store = JoinedStore(run.data)  # before anything is written, so that a wrong path leaves nothing behind
    with joined(run.device).main_process_first():  # the others find what it has written
        stage, description = _begin(run, store)
    return train(stage.train(), run.out, stage.config, budget, description, run.device)


def _begin(run: StageRun, store: JoinedStore) -> tuple[Stage, str]:
    """The stage of a run and the JSON text that describes its world; the run folder holds all that it starts from."""
    _check_teacher(run)
    if run.stage in LARGE_STAGES or run.expert is not None:
        check_expert(run.stage, run.expert, start_experts(run))
    _check_stage("--start", run.start, STARTS.get(run.stage))
    _check_stage("--teacher", run.teacher, TEACHERS)
    given = {"start": _given_world} | ({"teacher": _given_teacher} if run.stage in FORCING_STAGES else {})
    kept = {name: run.out / name for name in given}  # in the run, so that a continued one needs nothing else
    begun = {name: (folder / "config.json").is_file() for name, folder in kept.items()}  # what `save_world` writes last
    experts = {"start": run.expert, "teacher": None}
    worlds = {name: open_world(kept[name], experts[name]) if begun[name] else give(run) for name, give in given.items()}
    _check_size(store, worlds["start"].config)
    if "teacher" in worlds:
        check_teacher(worlds["teacher"], worlds["start"])
    remember(run, store)
    for name, world in worlds.items():
        if not begun[name]:
            save(world, kept[name], torch.float32)
            worlds[name] = open_world(kept[name], experts[name])
    return _stage(run, store, **worlds), to_json(worlds["start"].config)


def _stage(run: StageRun, store: JoinedStore, start: AnyWorld, teacher: AnyWorld | None = None) -> Stage:
    """The stage of a run, on the world that it trains."""
    start.requires_grad_(True)
    kind = STAGES[run.stage]
    settings = kind.settings(start.config)
    if run.stage in CODEC_STAGES:
        return kind(start.codec, store, settings)
    latents = encoded(start, store, settings, run.cache, run.clips, joined(run.device).device)
    if teacher is None:
        return kind(start, latents, settings)
    share_captions(teacher, start)
    return kind(start, latents, settings, teacher)


def remember(run: StageRun, store: JoinedStore) -> None:
    """Write down what a run is of; a run that continues as something else would mix two.

    Raises:
        ValueError: naming what differs.
    """
    start = run.start or f"random weights of {run.preset}, seed {run.seed}"
    wanted = {
        "stage": run.stage,
        "start": start,
        "recordings": store.digest,
        "clips": run.clips,
        "settings": list(run.settings) or None,
        "expert": run.expert,
    }
    if run.teacher is not None:
        wanted["teacher"] = run.teacher
    file = run.out / "run.json"
    if file.is_file():
        known = json.loads(file.read_text())
        if known == wanted:
            return
        differing = [name for name, value in wanted.items() if known.get(name) != value]
        if differing:
            name = differing[0]
            raise ValueError(
                f"{run.out} is a run with {name} {known.get(name)!r}, not {wanted[name]!r}; "
                "continue it with what it began with, or choose another --out"
            )
    run.out.mkdir(parents=True, exist_ok=True)
    write_json(file, wanted)


def trained_expert(run: Path) -> str | None:
    """Which of two experts a run trains; None when there is no choice."""
    file = run / "run.json"
    return json.loads(file.read_text()).get("expert") if file.is_file() else None


def start_experts(run: StageRun) -> tuple[str, ...]:
    """The experts of the large world that a run starts from, or of what it has kept of it; none of any other."""
    for folder in (run.out / "start", Path(folder_of(run.start or ""))):
        if (folder / "config.json").is_file():
            return experts_of(folder)
    return ()


def _check_size(store: JoinedStore, config: WorldConfig) -> None:
    """Raise ValueError when the recordings have another picture size than the world."""
    recorded, video = store[0].frames.shape[1:3], config.video
    if tuple(recorded) != (video.height, video.width):
        square = video.height == video.width
        remedy = f"record with --size {video.height}" if square else f"import with --size {video.height}x{video.width}"
        raise ValueError(
            f"the recordings have pictures of {recorded[0]}x{recorded[1]} and the world {config.name!r} makes "
            f"{video.height}x{video.width}; {remedy}, or choose another --preset or --start"
        )


def _check_teacher(run: StageRun) -> None:
    """Raise ValueError when a teacher is missing, or given to a stage that has none."""
    known = (run.out / "teacher" / "config.json").is_file()
    if run.stage in FORCING_STAGES and run.teacher is None and not known:
        raise ValueError(f"{run.stage} needs a --teacher: the run or world of a history stage")
    if run.stage not in FORCING_STAGES and run.teacher is not None:
        raise ValueError(f"{run.stage} has no teacher to choose; leave out --teacher {run.teacher}")


def _check_stage(option: str, name: str | None, wanted: Sequence[str] | None) -> None:
    """Raise ValueError when ``name`` is a run of another stage than the ``wanted`` ones; a world does not tell its."""
    file = Path(name or "") / "run.json"
    if name is None or wanted is None or not file.is_file():
        return
    stage = json.loads(file.read_text())["stage"]
    if stage not in wanted:
        raise ValueError(f"{option} {name} is a run of the stage {stage}; give one of {', '.join(wanted)}")


def _given_world(run: StageRun) -> AnyWorld:
    """The world that a run is told to start from, as its stage trains it."""
    kind = STAGES[run.stage]
    if run.start is None:
        world = World.random(run.preset, run.seed)
    else:
        large = is_large(find_world(folder_of(run.start)))
        if large:
            check_large_stage(run.stage, run.start)
        world = find_present_world(run.start, run.expert)
        world = world.as_variant(LARGE_STAGES[run.stage]) if large else world
    world.config = with_settings(world.config, run.settings)
    return world if run.stage in CODEC_STAGES else kind.starts_from(world)


def _given_teacher(run: StageRun) -> AnyWorld:
    return find_present_world(str(run.teacher)).with_blocks(())


def find_present_world(name: str, expert: str | None = None) -> AnyWorld:
    """The world of a run, or a world by name or folder, with the settings of its preset now; see `open_world`."""
    return with_present_settings(open_world(folder_of(name), expert))


def folder_of(name: str) -> str:
    """The folder of a run's world, or the name itself when it is none of a run."""
    exported = Path(name) / "world"
    return str(exported) if exported.is_dir() else name
