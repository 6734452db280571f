"""How well a policy does: every requested start is played once, in a generated world, in the true game, or in both.

Episode e begins at the same start with the same seed in both places, so that their difference is a paired one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.policies import Policy
from world_model.intervals import Interval, bootstrap
from wp2env.infos import slot_info
from wp2env.spaces import ChunkActions, Turns

RETURN, SUCCESS, LENGTH = "return", "success", "length"
NOBODY = -1  # the episode of a slot that waits for the others to finish


class Watcher(Protocol):
    """Is shown the pictures of every episode, as they come."""

    def __call__(self, episode: int, frame: np.ndarray) -> None: ...


@dataclass(frozen=True)
class Evaluation:
    """``N`` episodes of up to ``T`` steps, in the order of their starts.

    Attributes:
        starts: int64 ``[N]``, places in the bank.
        lengths: int64 ``[N]``, steps.
        rewards: float64 ``[N, T]``, of every step; 0 after the end.
        fulfilled: bool ``[N, T]``, the steps in which the task was fulfilled; None for a task that cannot be (it has no
            term ``success``).
    """

    starts: np.ndarray
    lengths: np.ndarray
    rewards: np.ndarray
    fulfilled: np.ndarray | None

    @property
    def returns(self) -> np.ndarray:
        """Undiscounted sums of rewards, float64 ``[N]``."""
        return self.rewards.sum(1)

    @property
    def successes(self) -> np.ndarray | None:
        """Whether the task was fulfilled, bool ``[N]``; None for a task that cannot be."""
        return None if self.fulfilled is None else self.fulfilled.any(1)

    def within(self, steps: int) -> Evaluation:
        """The beginnings of the episodes: what they had come to after so many steps."""
        fulfilled = None if self.fulfilled is None else self.fulfilled[:, :steps]
        return Evaluation(self.starts, np.minimum(self.lengths, steps), self.rewards[:, :steps], fulfilled)

    @property
    def measures(self) -> dict[str, np.ndarray]:
        """What is measured, float64 ``[N]`` each, by name."""
        measured = {RETURN: self.returns, LENGTH: self.lengths.astype(np.float64)}
        return measured if self.successes is None else {SUCCESS: self.successes.astype(np.float64), **measured}

    def intervals(self, seed: int = 0) -> dict[str, Interval]:
        """Means with 95 % bootstrap intervals over episodes."""
        return {name: bootstrap(values, seed) for name, values in self.measures.items()}

    def as_dict(self) -> dict[str, list[Any]]:
        """Episode by episode, JSON-able."""
        return {"start": self.starts.tolist(), **{name: values.tolist() for name, values in self.measures.items()}}


def gaps(one: Evaluation, other: Evaluation, seed: int = 0) -> dict[str, Interval]:
    """Means of ``one - other``, start by start, and the share of starts with the same outcome, "agreement".

    Raises:
        ValueError: when they did not begin from the same starts.
    """
    if not np.array_equal(one.starts, other.starts):
        raise ValueError("the two evaluations began from different starts; play the same ones in both")
    both, theirs = one.measures, other.measures
    found = {name: bootstrap(both[name] - theirs[name], seed) for name in both if name in theirs}
    if SUCCESS in found:
        found["agreement"] = bootstrap((both[SUCCESS] == theirs[SUCCESS]).astype(np.float64), seed)
    return found


def as_numbers(intervals: Mapping[str, Interval]) -> dict[str, dict[str, float]]:
    """Means and intervals by name, JSON-able."""
    return {name: {"mean": found.mean, "low": found.low, "high": found.high} for name, found in intervals.items()}


def by_place(evaluations: Mapping[str, Evaluation], seed: int = 0) -> dict[str, dict[str, Any]]:
    """Means and episodes of every place, JSON-able."""
    return {
        place: {"means": as_numbers(found.intervals(seed)), "episodes": found.as_dict()}
        for place, found in evaluations.items()
    }


def evaluate(
    policy: Policy, env: VectorEnv, starts: Sequence[int], max_steps: int, seed: int, watch: Watcher | None = None
) -> Evaluation:
    """Play one episode from each start, at most ``max_steps`` long.

    Slots take the next start as they become free, and none is left out for being slow: short episodes count no more
    than long ones.

    Args:
        env: an environment of this package with ``autoreset_mode=DISABLED``, a generated world or the true game.
        starts: places in the environment's bank of starts.
        seed: episode e has the seed ``seed + e``.
        watch: is called with every episode's number and pictures, the first and last ones too.

    Raises:
        ValueError: for no starts, another autoreset mode, or a policy that speaks another action space.
    """
    _check(policy, env, starts, max_steps)
    count, slots = len(starts), env.num_envs
    rewards, lengths = np.zeros((count, max_steps)), np.zeros(count, dtype=np.int64)
    fulfilled, can_succeed = np.zeros((count, max_steps), dtype=bool), False
    playing = np.array([slot if slot < count else NOBODY for slot in range(slots)])
    following = min(slots, count)

    policy.reset(np.ones(slots, dtype=bool))
    observations, _ = env.reset(seed=_seeds(playing, seed), options={"start_index": _indices(playing, starts)})
    _show(watch, playing, observations)
    while True:
        observations, paid, terminated, truncated, infos = env.step(policy.act(observations))
        _show(watch, playing, observations)
        over = np.asarray(terminated) | np.asarray(truncated)
        for slot in np.flatnonzero(playing != NOBODY):
            episode, terms = playing[slot], slot_info(infos, slot).get("reward_terms", {})
            rewards[episode, lengths[episode]] = paid[slot]
            fulfilled[episode, lengths[episode]] = terms.get(SUCCESS, 0) > 0
            lengths[episode] += 1
            can_succeed |= SUCCESS in terms
            over[slot] |= lengths[episode] >= max_steps
        for slot in np.flatnonzero(over):
            playing[slot] = following if following < count else NOBODY
            following += playing[slot] != NOBODY
        if (playing == NOBODY).all():
            break
        if over.any():
            policy.reset(over)
            options = {"reset_mask": over, "start_index": _indices(playing, starts)}
            observations, _ = env.reset(seed=_seeds(np.where(over, playing, NOBODY), seed), options=options)
            _show(watch, np.where(over, playing, NOBODY), observations)
    return Evaluation(np.array(starts, dtype=np.int64), lengths, rewards, fulfilled if can_succeed else None)


def _check(policy: Policy, env: VectorEnv, starts: Sequence[int], max_steps: int) -> None:
    mode = env.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.DISABLED:
        raise ValueError(f"autoreset_mode is {mode}; make the environment with autoreset_mode=DISABLED")
    if not len(starts):
        raise ValueError("there are no starts to play; give at least one")
    if max_steps < 1:
        raise ValueError(f"max_steps is {max_steps}; give at least 1")
    space = ChunkActions(policy.action_mode, Turns(), 1, False).space
    if space != env.single_action_space:
        raise ValueError(
            f"the policy gives actions of {space} and the environment takes {env.single_action_space}; make it with "
            f"action_mode={policy.action_mode!r}"
        )


def _seeds(playing: np.ndarray, seed: int) -> list[int | None]:
    return [None if episode == NOBODY else seed + int(episode) for episode in playing]


def _indices(playing: np.ndarray, starts: Sequence[int]) -> list[int]:
    """Where each slot begins; those that wait begin anywhere, and do not count."""
    return [int(starts[max(episode, 0)]) for episode in playing]


def _show(watch: Watcher | None, playing: np.ndarray, observations: np.ndarray) -> None:
    if watch is not None:
        for slot in np.flatnonzero(playing != NOBODY):
            watch(int(playing[slot]), observations[slot])
