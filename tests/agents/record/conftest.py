"""Recordings of the tiny world, played by a policy that chooses at random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.record.plan import Plan
from agents.record.recording import record
from wp2env import tasks


def ends(context: tasks.TaskContext) -> tasks.RewardOut:
    """Ends episodes after two steps where the slot's own generator says so; pays the number of the step."""
    over = np.array([generator.random() < 0.4 for generator in context.random]) & (context.steps == 2)
    return tasks.RewardOut(context.steps.astype(float), over, {"success": over.astype(float)})


@pytest.fixture(scope="session", autouse=True)
def short_task():
    """A task by name in which some episodes are over before their last step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tasks.TASKS, "short", lambda: tasks.Callback(ends, "short"))
        yield


@pytest.fixture(scope="session")
def plan(folder):
    """Makes a plan for the tiny world: 2 slots, 4 steps."""
    return lambda **changes: Plan(**{"policy": "random", "world": str(folder), "envs": 2, "steps": 4, **changes})


@pytest.fixture
def recorded(plan, tmp_path):
    """Records 5 episodes, 2 slots at a time, and gives the folder."""

    def run(name: str = "walks-v0", episodes: int = 5, form: str = "clips", **changes) -> Path:
        out = tmp_path / name
        record(plan(**{"task": "short", **changes}), out, episodes=episodes, form=form)
        return out

    return run


@pytest.fixture(scope="session")
def undisturbed(plan, tmp_path_factory) -> Path:
    """What `recorded` makes by default."""
    out = tmp_path_factory.mktemp("undisturbed") / "walks-v0"
    record(plan(task="short"), out, episodes=5)
    return out


@pytest.fixture(scope="session")
def tree():
    """All files of a folder with their bytes."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
