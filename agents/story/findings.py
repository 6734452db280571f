"""What a story is of, and what came out of it: numbers only, so that whoever shows them needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.evaluate import SUCCESS, Evaluation, as_numbers, by_place, gaps
from agents.places import DEFAULT_TASK, GAME, PLACES, WORLD
from world_model.intervals import Interval
from world_model.tables import markdown_table

RANDOM, BEFORE, AFTER, SCRIPTED = "random", "before training", "after training", "scripted"
POLICIES = (RANDOM, BEFORE, AFTER, SCRIPTED)
STAGES = 10  # equal parts of the training; the agent is tried out in the game after each, ...
TRIES = 32  # ... in so many episodes at most

Places = Mapping[str, Evaluation]  # by the name of the place, the same starts in both


@dataclass(frozen=True)
class Story:
    """What is told: everything that the outcome depends on.

    Attributes:
        world: a bundled world or a folder with one.
        steps: environment steps that the agent learns from, of all slots together.
        episodes: starts that every policy is judged by, in the world and in the game.
        dtype: that the world calculates in.
        minutes: that all of it may take. Training ends a few stages early where the processor is too slow, but not
            before the first one; what the agent then has learned depends on the clock. None for all steps.
    """

    world: str = "doom"
    steps: int = 30_000
    episodes: int = 32
    seed: int = 0
    dtype: str = "float32"
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ValueError(f"there are {self.minutes} minutes; give more than 0, or None for as many as it takes")
        if self.steps < 1 or self.episodes < 1:
            raise ValueError(f"there are {self.steps} steps and {self.episodes} episodes; give at least 1 of each")

    @property
    def stages(self) -> list[int]:
        """Steps after which the agent is tried out, 0 first and all of them last."""
        return sorted({0, *(max(1, self.steps * stage // STAGES) for stage in range(1, STAGES + 1))})

    @property
    def tries(self) -> int:
        """Validation starts that the agent is tried out on each time."""
        return min(TRIES, self.episodes)

    def settings(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return {"task": DEFAULT_TASK, **asdict(self)}


@dataclass(frozen=True)
class Findings:
    """What came out of a story.

    Attributes:
        steps: that the agent has learned from; whole rollouts, so a few more than were asked for.
        policies: by the names in `POLICIES`, on the test starts.
        curve: on the validation starts of the game, after so many steps.
        seconds: that each chapter took.
    """

    story: Story
    steps: int
    policies: Mapping[str, Places]
    curve: Sequence[tuple[int, Evaluation]]
    seconds: Mapping[str, float]

    @property
    def ended_early(self) -> bool:
        """Whether there was no time for all steps."""
        return self.steps < self.story.steps

    def share(self, name: str, place: str) -> Interval:
        """The share of a policy's episodes that reached the goal."""
        return success(self.policies[name][place], self.story.seed)

    def gap(self, name: str) -> dict[str, Interval]:
        """World minus game, start by start."""
        return gaps(self.policies[name][WORLD], self.policies[name][GAME], self.story.seed)

    def gain(self, place: str) -> Interval:
        """What training was worth there: the share of success after it minus that before, start by start."""
        return gaps(self.policies[AFTER][place], self.policies[BEFORE][place], self.story.seed)[SUCCESS]

    def as_dict(self) -> dict[str, Any]:
        """Everything, episode by episode, JSON-able."""
        return {
            "settings": self.story.settings(),
            "steps": self.steps,
            "seconds": dict(self.seconds),
            "policies": {
                name: {**by_place(places, self.story.seed), "world - game": as_numbers(self.gap(name))}
                for name, places in self.policies.items()
            },
            "after - before": as_numbers({place: self.gain(place) for place in PLACES}),
            "curve": [{"steps": steps, **by_place({GAME: found}, self.story.seed)} for steps, found in self.curve],
        }


def success(evaluation: Evaluation, seed: int) -> Interval:
    """The share of episodes that reached the goal."""
    return evaluation.intervals(seed)[SUCCESS]


def percent(share: Interval, signed: bool = False) -> str:
    """A share, or a difference of two, as ``31 % [20, 43]``."""
    sign = "+" if signed else ""
    mean, low, high = (f"{100 * value + 0.0:{sign}.0f}" for value in (share.mean, share.low, share.high))
    return f"{mean} % [{low}, {high}]"


def table(findings: Findings) -> str:
    """How often each policy reached the goal, as a Markdown table."""
    rows = [[name, *(percent(findings.share(name, place)) for place in PLACES)] for name in findings.policies]
    return markdown_table(["reached the red ball", *(f"in the {place}" for place in PLACES)], rows)
