"""What a curriculum did, stage by stage: ``report.md``, ``report.json`` and a plot of all losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from world_model.data.store import write_json
from world_model.tables import markdown_table
from world_model.training import checkpointing
from world_model.training.losses import read_losses

SMOOTHED = 10  # logged steps at either end that a loss of the report is the mean of
HEADER = (
    "stage",
    "minutes",
    "steps",
    "steps/s",
    "first loss",
    "last loss",
    "parameters trained",
    "world",
    "stopped itself",
)


@dataclass(frozen=True)
class StageReport:
    """The figures of one stage; its losses compare with each other, not with another stage's."""

    stage: str
    minutes: float  # of training, over all sessions
    steps: int
    steps_per_second: float
    first_loss: float | None  # mean of the first logged steps; None when the run was too short for any
    last_loss: float | None
    parameters_trained: int
    world: str  # folder, relative to the report
    collapsed: str | None  # why the stage stopped itself; its best world counts then

    @property
    def cells(self) -> list[str]:
        """The figures as one row of the table under `HEADER`."""
        losses = ["-" if loss is None else f"{loss:.4f}" for loss in (self.first_loss, self.last_loss)]
        pace = f"{self.steps_per_second:.2f}"
        counts = f"{self.parameters_trained:,}"
        return [
            self.stage,
            f"{self.minutes:.1f}",
            f"{self.steps:,}",
            pace,
            *losses,
            counts,
            f"`{self.world}`",
            self.collapsed or "-",
        ]


def write_report(folder: Path, runs: Mapping[str, Path]) -> None:
    """Write the report of the stages in ``runs``, by name, into ``folder``."""
    stages = [_measured(name, run, folder) for name, run in runs.items()]
    write_json(folder / "report.json", {"smoothed": SMOOTHED, "stages": [asdict(stage) for stage in stages]})
    drawn = _plot(folder / "losses.png", {name: read_losses(run) for name, run in runs.items()})
    lines = ["# Curriculum", "", markdown_table(HEADER, [stage.cells for stage in stages]), ""]
    lines += [f"Losses are means of the first and the last {SMOOTHED} entries of each stage's `losses.jsonl`.", ""]
    lines += ["![losses](losses.png)"] if drawn else ["No plot of the losses: matplotlib is not installed."]
    (folder / "report.md").write_text("\n".join(lines) + "\n")


def _measured(name: str, run: Path, folder: Path) -> StageReport:
    progress = checkpointing.progress_of(run)
    losses = [entry["loss"] for entry in read_losses(run)]
    first, last = losses[:SMOOTHED], losses[-SMOOTHED:]
    return StageReport(
        stage=name,
        minutes=progress.minutes,
        steps=progress.step,
        steps_per_second=progress.step / (60 * progress.minutes) if progress.minutes else 0.0,
        first_loss=sum(first) / len(first) if first else None,
        last_loss=sum(last) / len(last) if last else None,
        parameters_trained=checkpointing.trained_parameters(checkpointing.checkpoints(run)[-1]),
        world=str((run / "world").relative_to(folder)),
        collapsed=progress.collapsed,
    )


def _plot(path: Path, losses: Mapping[str, list[dict[str, float]]]) -> bool:
    """Draw every stage's loss over its steps, one panel for each; False when there is nothing to draw with."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print(f"no {path.name}: matplotlib is not installed")
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(losses), figsize=(4 * len(losses), 3.2), squeeze=False)
    for axis, (name, entries) in zip(axes[0], losses.items(), strict=True):
        axis.plot([entry["step"] for entry in entries], [entry["loss"] for entry in entries], linewidth=0.8)
        axis.set(title=name, xlabel="step", ylabel="loss", yscale="log")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
