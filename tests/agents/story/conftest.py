"""A story that somebody made up: policies of known outcome in both places."""

from __future__ import annotations

import numpy as np
import pytest

from agents.evaluate import Evaluation
from agents.film import Film
from agents.places import GAME, WORLD
from agents.playing import Played
from agents.story.findings import AFTER, BEFORE, RANDOM, SCRIPTED, Findings, Story

EPISODES = 10


def evaluation(reached: int, episodes: int = EPISODES) -> Evaluation:
    """The first ``reached`` episodes succeed, in 5 steps; the others take 48."""
    success = np.arange(episodes) < reached
    return Evaluation(np.arange(episodes), np.where(success, 5, 48), success.astype(float)[:, None], success[:, None])


def played(reached: int, filmed: int = 2, frames: int = 6) -> Played:
    """With a film of pictures that get brighter."""
    film = Film(filmed)
    for episode in range(filmed):
        for time in range(frames + episode):
            film(episode, np.full((64, 64, 3), 20 * time + 5, np.uint8))
    return Played(evaluation(reached), film, 9.0)


def findings(world: str = "doom", before: int = 1, after: int = 8) -> Findings:
    """The agent reaches the ball so many times, one time more in the world than in the game."""
    reached = {RANDOM: 1, BEFORE: before, AFTER: after, SCRIPTED: 9}
    return Findings(
        Story(world, steps=1000, episodes=EPISODES),
        1024,
        {name: {WORLD: evaluation(count + 1), GAME: evaluation(count)} for name, count in reached.items()},
        [(steps, evaluation(count)) for steps, count in ((0, 1), (512, 4), (1024, 8))],
        {"demo": 3.0, "training": 90.0},
    )


@pytest.fixture
def make_findings():
    """Makes `findings`."""
    return findings


@pytest.fixture
def make_played():
    """Makes `played` episodes."""
    return played
