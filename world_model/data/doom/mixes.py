"""Mixes of policies: what kinds of play a recording is made of, by the name that `Recipe.play` holds."""

from __future__ import annotations

from dataclasses import dataclass

from world_model.data.doom.attempts import FailedAttempt
from world_model.data.doom.policies import DepthWalker, Explorer, TaskWalker
from world_model.data.doom.revisits import Mirror, Rounds, Spinner, ThereAndBack

VISIBLE_ATTEMPTS = 0.93  # share of the attempted events that can be seen; the others are not kept


@dataclass(frozen=True)
class Mix:
    """Shares of the policies, and how often the other clips than ways back are given events and changes of view.
    A way back must show what the way out showed, so it has neither. With ``facing`` a clip begins where the goal of
    its task is seen, if its level has one."""

    shares: dict[type, float]  # of the clips, by policy; they sum to 1
    switching: float  # share of the clips other than ways back whose perspective changes
    events: float  # share of the clips other than ways back in which an event is attempted
    first_person: float = 0.5  # share of the clips that begin in first person
    facing: bool = False


EVERYTHING_BACK = 0.20
MIXES = {
    "everything": Mix(
        shares={Explorer: 0.55, ThereAndBack: EVERYTHING_BACK, TaskWalker: 0.15, DepthWalker: 0.10},
        switching=0.35 / (1 - EVERYTHING_BACK),
        events=0.5 / VISIBLE_ATTEMPTS / (1 - EVERYTHING_BACK),
    ),
    "revisits": Mix(
        shares={ThereAndBack: 0.45, Spinner: 0.20, Rounds: 0.25, Explorer: 0.10},
        switching=0.10,
        events=0.25 / VISIBLE_ATTEMPTS,
    ),
    "mirror": Mix(shares={Mirror: 1.0}, switching=0.0, events=0.0),
    "tasks": Mix(
        shares={TaskWalker: 0.55, FailedAttempt: 0.35, Explorer: 0.10},
        switching=0.05,
        events=0.0,
        first_person=0.85,
        facing=True,
    ),
}
