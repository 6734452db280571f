"""The curriculum as one run: every stage in a folder of its own, starting from the world of the stage before.

It can be stopped like a single stage. The same call then skips the stages whose budget is used and goes on in the
first that has some left.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from world_model.config import CURRICULUM_MINUTES
from world_model.data.joined import JoinedStore
from world_model.training.checkpointing import progress_of
from world_model.training.export import export
from world_model.training.loop import Budget
from world_model.training.processes import joined
from world_model.training.report import write_report
from world_model.training.run import StageRun, remember, run_stage, start_experts
from world_model.training.stages import ALL_EXPERTS, FORCING_STAGES, STAGES

ORDER = tuple(name for name in CURRICULUM_MINUTES if name in STAGES)
TEACHER = "history"  # the stage whose world scores rollouts


def budgets(steps: Mapping[str, float], minutes: Mapping[str, float]) -> dict[str, Budget]:
    """The budget of every stage: what is given for it, else the minutes of `CURRICULUM_MINUTES`."""
    return {
        name: Budget(steps.get(name), minutes.get(name, None if name in steps else CURRICULUM_MINUTES[name]))
        for name in ORDER
    }


def run_curriculum(first: StageRun, limits: Mapping[str, Budget]) -> Path:
    """Train from the stage of ``first`` to the last one, each in ``first.out / stage``; gives the last world's folder.

    ``first.start`` is the world that the first stage starts from.

    Raises:
        ValueError: when a later stage of the folder has begun from an earlier one that its budget would train on,
            and as `run_stage` does.
        KeyboardInterrupt: naming the stage, when SIGINT or SIGTERM asked to stop; what was trained is then saved.
    """
    runs = _runs(first)
    check_order(runs, limits)
    with _sigterm_as_interrupt():
        for run in runs:
            finish_stage(run, limits[run.stage])
    if joined(first.device).is_main_process:
        write_report(first.out, {run.out.name: run.out for run in runs})
    return runs[-1].out / "world"


def _runs(first: StageRun) -> list[StageRun]:
    """One run for each stage from that of ``first`` on; of two experts those stages that train one have a run each."""
    if first.stage != ORDER[0] and first.start is None:
        raise ValueError(f"the stage {first.stage} needs a codec that has learned; give a --start, or begin with codec")
    if ORDER.index(first.stage) > ORDER.index(TEACHER) and first.teacher is None:
        raise ValueError(
            f"a curriculum without its {TEACHER} stage needs a --teacher, the run or world of such a stage"
        )
    runs, start, experts = [], first.start, start_experts(first)
    for name in ORDER[ORDER.index(first.stage) :]:
        teacher = None
        if name in FORCING_STAGES:
            teacher = first.teacher or str(next(run.out for run in reversed(runs) if run.stage == TEACHER))
        for expert in experts if len(experts) > 1 and name not in ALL_EXPERTS else [None]:
            out = first.out / (name if expert is None else f"{name}-{expert}")
            runs.append(replace(first, stage=name, out=out, start=start, expert=expert, teacher=teacher))
            start = str(out)
    return runs


def check_order(runs: Sequence[StageRun], limits: Mapping[str, Budget]) -> None:
    """Raise ValueError when a stage that would be trained on has been begun from by the one after it."""
    for run, following in pairwise(runs):
        if not _finished(run, limits[run.stage]) and (following.out / "run.json").is_file():
            raise ValueError(
                f"the budget of {run.stage} is not used, but {following.stage} has already begun from its world; "
                "give the budget that it had, or choose another --out"
            )


def finish_stage(run: StageRun, budget: Budget) -> None:
    """Train a stage to the end of its budget, if it is not there yet, and export its world to ``run.out / "world"``.

    Raises:
        ValueError: as `run_stage` does.
        KeyboardInterrupt: naming the stage, when SIGINT or SIGTERM asked to stop; what was trained is then saved.
    """
    here = joined(run.device)
    if _finished(run, budget):
        remember(run, JoinedStore(run.data))
        progress = progress_of(run.out)
        ending = "" if progress.collapsed is None else f"; it stopped itself: {progress.collapsed}"
        here.print(f"{run.stage} is finished after {progress.step} steps{ending}")
    else:
        progress = run_stage(run, budget)
        if progress.interrupted:
            raise KeyboardInterrupt(f"interrupted in {run.stage} at step {progress.step}")
    if here.is_main_process:
        export(run.out, run.out / "world")  # of a finished stage, too: the run may have been killed right before it
    here.wait_for_everyone()


def _finished(run: StageRun, budget: Budget) -> bool:
    return budget.used(progress_of(run.out)) >= 1


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Between the loops of two stages, which handle it themselves, SIGTERM is what SIGINT is."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
