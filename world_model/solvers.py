"""Second-order multistep solvers of the flow ODE, for models that were not distilled to a few steps.

Both work on clean estimates ``m = x - sigma * velocity`` along the half log signal-to-noise ratio
``lambda = log((1 - sigma) / sigma)`` and reuse one estimate of the past. Sources: DPM-Solver++ (2M, midpoint;
arXiv:2211.01095, Alg. 2) and UniPC (predictor and corrector of order 2, B(h) = e^h - 1; arXiv:2302.04867, Eq. 3, 9).
The last step, to sigma 0, is of first order: there lambda is infinite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.flow import shift_levels

TRAINED_STEPS = 1000  # the timestep is this many times the noise level, cut to a whole number
UNIPC_START = 0.999  # UniPC's first level before the shift: at 1 its lambda would be infinite


def solver_levels(steps: int, shift: float, start: float = 1.0) -> Tensor:
    """The levels ``[steps + 1]`` from ``start`` (before the shift) down to 0, float32."""
    return shift_levels(torch.linspace(start, 0, steps + 1, dtype=torch.float64), shift).float()


class _Multistep:
    """What both solvers share: the grid, and the previous clean estimate."""

    start = 1.0

    def __init__(self, steps: int, shift: float) -> None:
        self.levels = solver_levels(steps, shift, self.start)
        self.timesteps = (self.levels[:-1] * TRAINED_STEPS).long()
        self.index = 0
        self.before: Tensor | None = None  # the clean estimate of the step before

    def _lambda(self, index: int) -> Tensor:
        return torch.log(1 - self.levels[index]) - torch.log(self.levels[index])

    def _clean(self, x: Tensor, velocity: Tensor) -> Tensor:
        return x - self.levels[self.index] * velocity

    def _first_order(self, x: Tensor, clean: Tensor, index: int) -> tuple[Tensor, Tensor]:
        """From level ``index`` to the next with a constant clean estimate; also ``(1 - sigma') (1 - e^-h)``, the weight
        of what a higher order adds to it."""
        now, then = self.levels[index], self.levels[index + 1]
        weight = (1 - then) - then * (1 - now) / now
        return then / now * x + weight * clean, weight


class DPMSolver(_Multistep):
    """DPM-Solver++ 2M for one chunk; call `step` once per level, in order."""

    def step(self, x: Tensor, velocity: Tensor) -> Tensor:
        """The sample at the next level from the sample and velocity at this one."""
        clean, at = self._clean(x, velocity), self.index
        x, weight = self._first_order(x, clean, at)
        if at > 0 and at + 2 < len(self.levels):
            ratio = (self._lambda(at) - self._lambda(at - 1)) / (self._lambda(at + 1) - self._lambda(at))
            x = x + weight / 2 * (clean - self.before) / ratio
        self.before, self.index = clean, at + 1
        return x


class UniPC(_Multistep):
    """UniPC of order 2 for one chunk; call `step` once per level, in order.

    Every step first corrects the sample it is given with the velocity found there, then predicts the next.
    """

    start = UNIPC_START

    def __init__(self, steps: int, shift: float) -> None:
        super().__init__(steps, shift)
        # Of the step before: its corrected sample, r = (lambda_{i-1} - lambda_i) / (lambda_{i+1} - lambda_i), and
        # the slope (m_{i-1} - m_i) / r, None at first order.
        self.source: Tensor | None = None
        self.ratio = torch.ones(())
        self.slope: Tensor | None = None

    def step(self, x: Tensor, velocity: Tensor) -> Tensor:
        """The sample at the next level from the sample and velocity at this one."""
        clean, at = self._clean(x, velocity), self.index
        if at > 0:
            x = self._corrected(clean)
        self.slope = None
        if at > 0 and at + 2 < len(self.levels):
            self.ratio = (self._lambda(at - 1) - self._lambda(at)) / (self._lambda(at + 1) - self._lambda(at))
            self.slope = (self.before - clean) / self.ratio
        self.source, self.before, self.index = x, clean, at + 1
        x, weight = self._first_order(x, clean, at)
        return x if self.slope is None else x + weight / 2 * self.slope

    def _corrected(self, clean: Tensor) -> Tensor:
        """The sample at this level again, with the clean estimate found here as one more support."""
        at = self.index - 1
        x, weight = self._first_order(self.source, self.before, at)
        if self.slope is None:
            return x + weight / 2 * (clean - self.before)
        h = self._lambda(at) - self._lambda(at + 1)  # negative
        base = torch.expm1(h)
        phi = base / h - 1
        targets = torch.stack([phi / base, 2 * (phi / h - 0.5) / base])
        rows = torch.stack([torch.ones(2), torch.stack([self.ratio, torch.ones(())])])
        of_past, of_here = torch.linalg.solve(rows, targets)
        return x + weight * (of_past * self.slope + of_here * (clean - self.before))
