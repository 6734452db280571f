"""A policy written by hand: it looks for the red ball, turns towards it and walks there."""

from __future__ import annotations

import numpy as np

from agents.policies.ball import find_ball
from agents.policies.protocol import check_pictures
from agents.policies.simple import CHOICE

FIELD_OF_VIEW = 90.0  # degrees from the left border of a picture to the right one
AHEAD = 11.0  # degrees off the middle that count as straight ahead, half of a turn
ASIDE = 30.0  # degrees from which on it turns without walking
CLOSE = 0.45  # height of a ball that is a step away: it is walked on to even when it leaves the picture
LUNGE = 2  # steps that it walks on after losing a close ball
LOOK_ROUND = 18  # steps of a full turn
STROLL = 6  # steps to another place after a full turn without a ball


class Scripted:
    """Turns to the red ball and walks to it; turns on the spot while it sees none, and then looks from elsewhere."""

    action_mode = "discrete"

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.side = np.ones(num_envs)  # where a ball was seen last: -1 left, 1 right
        self.lost = np.zeros(num_envs, dtype=np.int64)  # steps since then
        self.lunge = np.zeros(num_envs, dtype=np.int64)  # steps still to walk blindly

    def reset(self, mask: np.ndarray) -> None:
        """Forget what was seen."""
        self.side[mask], self.lost[mask], self.lunge[mask] = 1, 0, 0

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Actions ``[B]``."""
        check_pictures("'scripted'", observations, self.num_envs)
        choices = [self._choose(slot, frame) for slot, frame in enumerate(observations)]
        return np.array([CHOICE[choice] for choice in choices], dtype=np.int64)

    def _choose(self, slot: int, frame: np.ndarray) -> str:
        ball = find_ball(frame)
        if ball is None:
            return self._search(slot)
        degrees = FIELD_OF_VIEW * ball.offset
        self.side[slot], self.lost[slot] = np.sign(degrees) or 1, 0
        self.lunge[slot] = LUNGE * (ball.height > CLOSE)
        if abs(degrees) <= AHEAD:
            return "forward"
        turn = "turn right" if degrees > 0 else "turn left"
        return turn if abs(degrees) > ASIDE else f"forward and {turn}"

    def _search(self, slot: int) -> str:
        if self.lunge[slot] > 0:
            self.lunge[slot] -= 1
            return "forward"
        self.lost[slot] += 1
        if (self.lost[slot] - 1) % (LOOK_ROUND + STROLL) >= LOOK_ROUND:
            return "forward"
        return "turn right" if self.side[slot] > 0 else "turn left"
