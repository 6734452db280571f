"""Worlds distilled in four ways from the same student and teacher (for `benchmarks.forcing_ablation`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from world_model.training.checkpointing import Progress, progress_of
from world_model.training.curriculum import check_order, finish_stage
from world_model.training.few_step import FewStepStage
from world_model.training.loop import Budget
from world_model.training.run import StageRun
from world_model.training.stable_forcing import FullContextForcingStage, StableForcingStage, TruncatedForcingStage

FEW_STEP = FewStepStage.name
QUICK_MINUTES = {"codec": 0.25, "history": 0.15, "autoregressive": 0.15}  # of the stages before, in a quick run
FULL, FULL_CONTEXT, NO_START, NEITHER = "full", "full-context teacher", "no initialisation", "neither"


@dataclass(frozen=True)
class Arm:
    """One way from the autoregressive student to a world of few evaluations."""

    stage: str  # that learns from rollouts
    initialised: bool  # whether it starts from the few-step stage instead of the student


ARMS = {  # from the best to the worst, as the paper has it
    FULL: Arm(StableForcingStage.name, initialised=True),
    FULL_CONTEXT: Arm(FullContextForcingStage.name, initialised=True),
    NO_START: Arm(StableForcingStage.name, initialised=False),
    NEITHER: Arm(TruncatedForcingStage.name, initialised=False),
}


@dataclass(frozen=True)
class Training:
    """All that the arms have in common."""

    student: str  # autoregressive world or run
    teacher: str  # world or run of a history stage
    data: tuple[Path, ...]  # recordings
    clips: int | None  # use only the first so many of each recording
    few_step: Budget
    forcing: Budget
    out: Path  # holds a folder of runs for each seed, and the encoded recordings, which all runs share

    def run_folder(self, name: str, seed: int) -> Path:
        """The run of an arm or of the few-step stage."""
        return self.out / f"seed-{seed}" / name.replace(" ", "-")


def stages_of(name: str, training: Training, seed: int) -> Iterator[tuple[StageRun, Budget]]:
    """What an arm trains, one after the other; arms that have a stage in common have one run of it."""
    arm, folder = ARMS[name], training.run_folder(FEW_STEP, seed)
    first = StageRun(
        stage=FEW_STEP,
        data=training.data,
        out=folder,
        cache=training.out / "cache",
        start=training.student,
        settings=tuple(f"{kind.settings_name or kind.name}.seed={seed}" for kind in (FewStepStage, StableForcingStage)),
        clips=training.clips,
    )
    if arm.initialised:
        yield first, training.few_step
    start = str(folder) if arm.initialised else training.student
    last = replace(first, stage=arm.stage, out=training.run_folder(name, seed), start=start, teacher=training.teacher)
    yield last, training.forcing


def train_arm(name: str, training: Training, seed: int) -> Progress:
    """Train the arm ``name`` of `ARMS`; gives how far its last stage has come.

    An unfinished run goes on where it stopped; a finished one is left as it is. A run that collapsed has its best world
    kept.

    Raises:
        ValueError: when a run began as something else, or one that has begun would lose its start.
        InterruptedError: when a signal ended the training before its budget.
    """
    stages = list(stages_of(name, training, seed))
    check_order([run for run, _ in stages], {run.stage: budget for run, budget in stages})
    for run, budget in stages:
        finish(run, budget)
    return progress_of(training.run_folder(name, seed))


def finish(run: StageRun, budget: Budget) -> None:
    """Train one stage to the end of its budget.

    Raises:
        ValueError: as `finish_stage` does.
        InterruptedError: when a signal ended the training before that.
    """
    try:
        finish_stage(run, budget)
    except KeyboardInterrupt as stop:
        raise InterruptedError(
            f"{run.out} was {str(stop) or 'interrupted'}; the same command goes on from there"
        ) from None


def quick_worlds(data: tuple[Path, ...], out: Path, seed: int) -> tuple[str, str]:
    """Student and teacher of the tiny preset from scratch, by a curriculum in a hurry: it shows that it runs."""
    start = None
    for stage, minutes in QUICK_MINUTES.items():
        run = StageRun(stage, data, out / stage, out / "cache", start=start, preset="tiny", seed=seed)
        finish(run, Budget(minutes=minutes))
        start = str(run.out)
    return str(out / "autoregressive"), str(out / "history")
