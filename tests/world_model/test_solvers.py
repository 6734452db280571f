"""The many-step solvers, on data whose exact flow is known."""

from __future__ import annotations

import pytest
import torch

from world_model.solvers import DPMSolver, UniPC

SOLVERS = pytest.mark.parametrize("kind", [UniPC, DPMSolver])


def run(kind, steps, x, velocity_at):
    solver = kind(steps, 3.0)
    x = x * solver.levels[0]
    for level in solver.levels[:-1]:
        x = solver.step(x, velocity_at(x, level))
    return x


@SOLVERS
def test_a_single_picture_is_reached_exactly(kind):
    """With one possible clean sample the velocity points at it, and any number of steps arrives."""
    goal, noise = torch.randn(2, 5), torch.randn(2, 5)
    for steps in (1, 2, 5):
        start = noise + (1 - kind(steps, 3.0).levels[0]) / kind(steps, 3.0).levels[0] * goal
        torch.testing.assert_close(run(kind, steps, start, lambda x, level: (x - goal) / level), goal)


@SOLVERS
def test_the_error_falls_faster_than_first_order(kind):
    """Gaussian data of scale 0.5: clean estimate x * (1 - s) c / ((1 - s)^2 c + s^2) with c = 0.25."""

    def velocity_at(x, level):
        clean = x * (1 - level) * 0.25 / ((1 - level) ** 2 * 0.25 + level**2)
        return (x - clean) / level

    def error(steps):
        level = kind(steps, 3.0).levels[0]
        exact = 0.5 / torch.sqrt((1 - level) ** 2 * 0.25 + level**2)  # the flow of a Gaussian is a scaling
        return float(abs(run(kind, steps, torch.ones(()), velocity_at) - level * exact))

    assert error(24) < error(6) / 6
