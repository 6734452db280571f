"""Tasks by name, judged by the engine in the true game and by the world's learned reward heads in a generated one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from world_model.data.doom.task_names import TASK_NAMES
from wp2env.tasks import RewardOut, RewardSource, TaskContext

ENDS = 0.5  # probability from which on an event is taken to have ended its task


class NamedTask:
    """A task of the Doom engine.

    *In the true game* reward, success and end are the engine's own, and the confidence is 0, its highest.

    *In a generated world* they are a guess of the world's reward heads (`world_model.reward`), which learned from
    recordings of the true game what the newest latents look like when the task's event happens. Success is declared,
    reward paid, when the event's probability reaches the threshold that was calibrated for the task; the episode ends
    when the heads believe that this event ends the task. The confidence is minus the standard deviation of the
    ensemble's probabilities, from -0.5 to 0. Of a chunk of several latents the most telling one decides.

    Terms: ``success`` (1 in a step in which the event happened; each health pack is one) and, in a generated world,
    ``probability`` of the event.

    Args:
        name: one of `NAMED_TASKS`, or another one that the given ``heads`` know.
        sample: draw whether the event happened with its probability, from the slot's own generator, instead of
            comparing it with the threshold.
        expected: pay the expected reward in every step; success and end are declared as before.
        penalty: this times the ensemble's standard deviation is taken off the reward of every step.
        heads: reward heads to use in place of the world's own, on its device.
    """

    def __init__(
        self, name: str, *, sample: bool = False, expected: bool = False, penalty: float = 0.0, heads: Any = None
    ) -> None:
        if not (np.isfinite(penalty) and penalty >= 0):
            raise ValueError(f"penalty is {penalty}; give a factor of 0 or more")
        self.name, self.sample, self.expected, self.penalty = name, sample, expected, float(penalty)
        self.heads, self._given = heads, heads
        self.history: Tensor | None = None  # the newest latents of every slot, [B, k, C, h, w]
        if heads is not None:
            self._check_known()

    def bind(self, world: Any) -> None:
        """Take the reward heads of the world that the task will judge; the environment calls it when it is made.

        Raises:
            ValueError: when the world has none, or none for this task, or the given ones read the latents of another
            codec.
        """
        from world_model.reward import check_fit, heads_of  # here: in the true game nothing is loaded

        self.heads = heads_of(world) if self._given is None else self._given
        if self.heads is None:
            name = getattr(world, "name", world)
            raise ValueError(
                f"the world {name!r} has no learned reward for the task {self.name!r}; train one with `wp2 train "
                "reward`, or choose the task 'explore' or 'constant', or give a function of the TaskContext"
            )
        self._check_known()
        if self._given is not None:  # the world's own were checked when they were read
            check_fit(self.heads, world, "this task")

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        """Forget what the slots have shown; the heads see the start as if it had been there all along."""
        if context.truth is not None or self.heads is None:
            return
        newest = context.latents[:, -1:].float().expand(-1, self.heads.config.window, -1, -1, -1)
        if self.history is None or self.history.shape != newest.shape:
            self.history = torch.zeros_like(newest)
        chosen = torch.from_numpy(mask).to(newest.device)[:, None, None, None, None]
        self.history = torch.where(chosen, newest, self.history)

    def __call__(self, context: TaskContext) -> RewardOut:
        """The engine's word, or else the heads'."""
        return self._guessed(context) if context.truth is None else self._true(context)

    def state_dict(self) -> dict[str, Any]:
        """A copy of the newest latents."""
        return {} if self.history is None else {"history": self.history.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.history = state["history"].clone() if "history" in state else None

    def _true(self, context: TaskContext) -> RewardOut:
        if self.name not in context.truth:
            raise ValueError(f"the true game has no task {self.name!r}; it has {', '.join(map(repr, context.truth))}")
        reward, ended = (np.asarray(value) for value in context.truth[self.name])
        reward = reward.astype(np.float64)
        return RewardOut(
            reward, ended.astype(bool), {"success": (reward > 0).astype(np.float64)}, np.zeros(len(reward))
        )

    def _guessed(self, context: TaskContext) -> RewardOut:
        if self.history is None:
            raise ValueError(f"the task {self.name!r} knows no world; call bind(world) and then reset first")
        column = self.heads.tasks.index(self.name)
        event, end, reward, spread = (part.numpy() for part in self._look(context, column))
        if self.sample:
            happened = np.array([random.random() for random in context.random]) < event
        else:
            happened = event >= self.heads.config.thresholds[column]
        paid = reward if self.expected else happened * self.heads.config.amounts[column]
        terms = {"success": happened.astype(np.float64), "probability": event}
        return RewardOut(paid - self.penalty * spread, happened & (end >= ENDS), terms, -spread)

    def _look(self, context: TaskContext, column: int) -> Tensor:
        """Event, end, expected reward and spread ``[4, B]`` at the latent of the chunk where the event is likeliest."""
        said = []
        for index in range(context.latents.shape[1]):
            self.history = torch.cat([self.history[:, 1:], context.latents[:, index : index + 1].float()], dim=1)
            said.append(torch.stack([part[:, column] for part in self.heads.judge(self.history)]))
        said = torch.stack(said).cpu().double()  # [n, 4, B]
        return said.gather(0, said[:, :1].argmax(0, keepdim=True).expand(1, *said.shape[1:]))[0]

    def _check_known(self) -> None:
        if self.name not in self.heads.tasks:
            known = ", ".join(map(repr, self.heads.tasks))
            raise ValueError(f"the reward heads know {known}, not {self.name!r}; choose one of these or train others")


NAMED_TASKS: dict[str, Callable[[], RewardSource]] = {name: partial(NamedTask, name) for name in TASK_NAMES}
