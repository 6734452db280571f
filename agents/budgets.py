"""An agent at several points of one training: the longest budget is trained, and the others are met on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.algorithms import SETTINGS
from agents.checkpoints import remember
from agents.keeping import Keeping
from agents.policies import checkpoints
from agents.policies.card import read_card
from agents.train import AgentRun, train_agent


def train_to(run: AgentRun, budgets: Sequence[int], out: Path, device: str = "cpu") -> dict[int, Path]:
    """Train until the longest budget is used; a run that is there already is continued, or left alone if it is done.

    Args:
        run: of an algorithm that learns from rollouts; whole ones, so that a budget is met by the first checkpoint
            after it.
        budgets: environment steps; 0 for the untrained agent.
        out: folder of the run.

    Returns:
        The folder of a policy for each budget.

    Raises:
        ValueError: for a folder with another run, or one that kept nothing at one of the budgets.
        InterruptedError: when a signal asked to stop; the same call goes on from there.
    """
    budgets = sorted(set(budgets))
    if out.exists():
        remember(out, run.settings())
    if not out.exists() or _found(run, budgets[-1], out) is None:
        newest = train_agent(run, max(1, budgets[-1]), out, keeping=Keeping(at=budgets), device=device)
        steps = read_card(newest).steps
        if steps < budgets[-1]:
            raise InterruptedError(
                f"the training in {out} was interrupted after {steps} of {budgets[-1]} steps; the same command goes on"
            )
    found = {budget: _found(run, budget, out) for budget in budgets}
    missing = next((budget for budget, folder in found.items() if folder is None), None)
    if missing is not None:
        raise ValueError(
            f"{out} was trained with other budgets and kept nothing at {missing} steps; give those of then, or another "
            "place"
        )
    return found


def _found(run: AgentRun, budget: int, out: Path) -> Path | None:
    """The checkpoint at the first end of a rollout from the budget on."""
    rollout = SETTINGS[run.algorithm]["n_steps"] * run.envs
    return next((path for path in checkpoints(out) if budget <= read_card(path).steps < budget + rollout), None)
