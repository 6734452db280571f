"""Ray workers that play waves of a plan, on this machine or on those of a running cluster.

Every worker has its own environment and policy. Finished episodes come back to the caller, who alone writes, so the
machines need no common disk; they need this package, the policy, the world and the starts under the same paths.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from agents.record import LOCAL
from agents.record.plan import Plan
from agents.record.play import Player
from world_model.data.clips import Clip

TRIES = 3  # for a wave in whose play a worker dies


class WorkersDied(RuntimeError):
    """Workers that died again and again over the same episodes."""


class Crew:
    """``workers`` Ray actors; close it after use.

    Args:
        plan: what to play.
        licence: as `Player`.
        workers: how many, one core each.
        address: of a running cluster ("auto" or "host:port"), or "local" to start Ray on this machine.

    Raises:
        ConnectionError: when there is no cluster at the address.
    """

    def __init__(self, plan: Plan, licence: str = "", workers: int = 1, address: str = LOCAL) -> None:
        import ray

        self.ray, self.plan, self.licence, self.workers = ray, plan, licence, workers
        self._own = not ray.is_initialized()
        if self._own:
            options = {"num_cpus": workers, "include_dashboard": False} if address == LOCAL else {}
            ray.init(address=address, log_to_driver=False, logging_level="error", **options)
        # An actor that dies is not restarted by Ray: what it had in hand is ours to share out again.
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Worker)
        self._staff: list[Any] = []
        self._at_work: dict[Any, tuple[Any, int]] = {}  # promise -> (actor, its wave)

    def play(self, waves: Iterable[int]) -> Iterator[tuple[int, Clip]]:
        """The episodes of the waves with their numbers, each wave when it is over, in no certain order.

        Raises:
            WorkersDied: when workers died `TRIES` times over the same wave.
            ValueError: what a worker found wrong with the plan.
        """
        waiting, deaths = deque(waves), Counter()
        for _ in range(min(self.workers, len(waiting))):
            self._order(self._hire(), waiting.popleft())
        while self._at_work:
            (promise, *_), _ = self.ray.wait(list(self._at_work), num_returns=1)
            actor, wave = self._at_work.pop(promise)
            try:
                episodes = self.ray.get(promise)
            except self.ray.exceptions.RayActorError as death:
                deaths[wave] += 1
                if deaths[wave] == TRIES:
                    raise WorkersDied(
                        f"a worker died {TRIES} times over the episodes {self._told(wave)}; see that the machines have "
                        "enough memory"
                    ) from death
                self._order(self._hire(), wave)
                continue
            except self.ray.exceptions.RayTaskError as failure:
                raise failure.cause from None
            if waiting:
                self._order(actor, waiting.popleft())
            yield from episodes

    def close(self) -> None:
        """End the workers, and Ray where it was started here."""
        for actor in self._staff:
            self.ray.kill(actor)
        if self._own:
            self.ray.shutdown()

    def _hire(self) -> Any:
        self._staff.append(self._actor.remote(self.plan, self.licence))
        return self._staff[-1]

    def _order(self, actor: Any, wave: int) -> None:
        self._at_work[actor.play.remote(wave)] = actor, wave

    def _told(self, wave: int) -> str:
        episodes = self.plan.episodes_of(wave)
        return f"{episodes[0]} to {episodes[-1]}"


class _Worker:
    """Lives in a process of its own."""

    def __init__(self, plan: Plan, licence: str) -> None:
        self._made_of, self._player = (plan, licence), None

    def play(self, wave: int) -> list[tuple[int, Clip]]:
        """A whole wave. The player is made here, so that what is wrong with the plan reaches the caller as it is."""
        if self._player is None:
            self._player = Player(*self._made_of)
        return list(self._player.play([wave]))
