"""The plots of a story, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from agents.places import GAME, PLACES, WORLD
from agents.story.findings import Findings, success
from world_model.intervals import Interval

COLOURS = {WORLD: "#c8741a", GAME: "#2a6f97"}
NAMES = {WORLD: "in the generated world", GAME: "in the true game"}
DOTS = 160  # an inch
APART = 0.12  # between the places of one policy, in lines
LIMITS = (-0.04, 1.04)  # of a share, so that 0 and 1 are seen whole


def policies(findings: Findings) -> bytes:
    """How often every policy reaches the goal in both places, with intervals."""
    figure, axis = _axis(1 + 0.55 * len(findings.policies))
    lines = range(len(findings.policies))[::-1]  # the first one on top
    for place, shift in zip(PLACES, (APART, -APART), strict=True):
        shares = [findings.share(name, place) for name in findings.policies]
        heights = [line + shift for line in lines]
        axis.errorbar([share.mean for share in shares], heights, xerr=_errors(shares), **_style(place), linestyle="")
    axis.set_yticks(lines, list(findings.policies))
    axis.set_ylim(-0.6, len(lines) - 0.4)
    axis.set_xlim(*LIMITS)
    axis.xaxis.set_major_formatter(PercentFormatter(1))
    axis.set_xlabel("episodes that reach the red ball (bars: 95 % intervals)")
    axis.grid(axis="x", alpha=0.3)
    return _png(figure, axis)


def learning(findings: Findings) -> bytes:
    """How often the agent reaches the goal in the game while it learns, on starts that it does not learn from."""
    figure, axis = _axis(3.2)
    steps = [steps for steps, _ in findings.curve]
    shares = [success(evaluation, findings.story.seed) for _, evaluation in findings.curve]
    axis.errorbar(steps, [share.mean for share in shares], yerr=_errors(shares), **_style(GAME))
    axis.set_xlabel("steps in the generated world")
    axis.set_ylim(*LIMITS)
    axis.yaxis.set_major_formatter(PercentFormatter(1))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_ylabel("episodes that reach the red ball")
    axis.grid(alpha=0.3)
    return _png(figure, axis)


def _axis(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, height), layout="constrained")  # without pyplot, which keeps every figure
    return figure, figure.add_subplot()


def _style(place: str) -> dict[str, object]:
    return {"color": COLOURS[place], "label": NAMES[place], "marker": "o", "capsize": 3}


def _errors(shares: Sequence[Interval]) -> list[list[float]]:
    """How far the intervals reach below and above."""
    return [[share.mean - share.low for share in shares], [share.high - share.mean for share in shares]]


def _png(figure: Figure, axis: Axes) -> bytes:
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=len(PLACES), frameon=False)
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=DOTS)
    return held.getvalue()
