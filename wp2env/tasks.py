"""Tasks: where reward and the end of an episode come from.

A world model has no true reward: it generates pictures. A *task* judges them. Tasks are batched and stateful; each
belongs to one environment, and `get_state` and `set_state` of the environment carry the task's state along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import cv2
import numpy as np

from world_model.controls import StructuredCaption
from wp2env.spaces import as_array

GRID = 8  # a coarse picture has 8x8 cells


@dataclass(frozen=True)
class TaskContext:
    """One step of ``B`` slots, read-only. After a reset `frames` are the start and `actions` are idle.

    Attributes:
        frames: uint8 ``[B, F, H, W, 3]``, the frames of the newest chunk.
        previous: uint8 ``[B, H, W, 3]``, the frame before them.
        actions: float32 ``[B, n, 6]``, the action rows that led to them.
        captions: ``B`` captions as in force.
        steps: int64 ``[B]``, steps of the episode, this one included; 0 after a reset.
        active: bool ``[B]``; False where a slot idles until its reset, and whatever the task says of it is dropped.
        random: ``B`` generators, made anew from the slot's seed in every episode.
        latents: the newest chunk's latents ``[B, n, C, h, w]``, a tensor on the world's device.
        memory: features of the world's memory, None where the world offers none.
        truth: in the true game, reward ``[B]`` and end ``[B]`` of this step by the name of the engine's task
            (`world_model.data.doom.tasks`); None in a generated world, which has none.
    """

    frames: np.ndarray
    previous: np.ndarray
    actions: np.ndarray
    captions: Sequence[StructuredCaption]
    steps: np.ndarray
    active: np.ndarray
    random: Sequence[np.random.Generator]
    latents: Any = None
    memory: Any = None
    truth: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None


@dataclass(frozen=True)
class RewardOut:
    """A task's word on one step of ``B`` slots.

    Attributes:
        reward: float ``[B]``.
        terminated: bool ``[B]``, the episode is over because of what happened (never because of time).
        terms: what the reward is made of, each float ``[B]``; `info["reward_terms"]`. A task that can be fulfilled has
            the term ``success``, above 0 in the step that fulfils it.
        confidence: float ``[B]`` or None; `info["reward_confidence"]`.
    """

    reward: np.ndarray
    terminated: np.ndarray
    terms: Mapping[str, np.ndarray] = field(default_factory=dict)
    confidence: np.ndarray | None = None


@runtime_checkable
class RewardSource(Protocol):
    """What every task offers; `name` is `info["reward_source"]`."""

    name: str

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        """Begin anew in the slots of ``mask`` (bool ``[B]``) and leave the others as they are."""

    def __call__(self, context: TaskContext) -> RewardOut:
        """Judge one step."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of all that lasts between two steps."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, any number of times."""


class StateArrays:
    """State in NumPy arrays with the slots as first axis, named in ``_state``; they exist from the first reset on."""

    _state: tuple[str, ...] = ()

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state."""
        return {name: getattr(self, name).copy() for name in self._state if hasattr(self, name)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, value.copy())

    def _clear(self, mask: np.ndarray, shapes: Mapping[str, tuple[tuple[int, ...], type]]) -> None:
        for name, (shape, kind) in shapes.items():
            if not hasattr(self, name) or len(getattr(self, name)) != len(mask):
                setattr(self, name, np.zeros((len(mask), *shape), dtype=kind))
            getattr(self, name)[mask] = 0


class Exploration(StateArrays):
    """Reward for pictures that the episode has not shown before.

    Every frame becomes a coarse picture of 8x8 cells. Its novelty is the root-mean-square distance, in [0, 1], to the
    nearest one remembered in this episode; beyond ``threshold`` it is paid, times ``scale``, and remembered. Seeing
    the same again pays nothing, and never ends an episode. The reward knows nothing of places: whatever changes the
    picture pays, a door that opens, a change of view, but also the world's own mistakes.

    Args:
        scale: factor of the reward.
        threshold: smallest novelty that counts, above the generator's flicker.
        capacity: coarse pictures remembered per slot; beyond it the oldest is forgotten.
    """

    name = "exploration"
    _state = ("seen", "count")

    def __init__(self, scale: float = 1.0, threshold: float = 0.03, capacity: int = 512) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; remember at least 1 picture")
        self.scale, self.threshold, self.capacity = scale, threshold, capacity

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        """Forget the slots' episodes and remember their first pictures."""
        self._clear(mask, {"seen": ((self.capacity, GRID * GRID * 3), np.float32), "count": ((), np.int64)})
        self._remember(mask, coarse(context.frames[:, -1]))

    def __call__(self, context: TaskContext) -> RewardOut:
        """Novelty of the newest frame."""
        pictures = coarse(context.frames[:, -1])
        novelty = np.zeros(len(pictures))
        for slot, picture in enumerate(pictures):
            known = self.seen[slot, : min(self.count[slot], self.capacity)]
            novelty[slot] = np.sqrt(np.square(known - picture).mean(1).min())
        new = novelty > self.threshold
        self._remember(new, pictures)
        novelty[~new] = 0
        return RewardOut(self.scale * novelty, np.zeros(len(new), dtype=bool), {"novelty": novelty})

    def _remember(self, mask: np.ndarray, pictures: np.ndarray) -> None:
        self.seen[mask, self.count[mask] % self.capacity] = pictures[mask]
        self.count[mask] += 1


class GoalImage(StateArrays):
    """Reward for coming closer to a picture, and a bonus and the end for staying there.

    The potential of a frame is one minus the root-mean-square distance of its coarse 8x8 picture to the goal's. The
    reward is ``gamma`` times the new potential minus the old one (Ng, Harada and Russell 1999), so that waiting near
    the goal earns nothing. The episode ends, with ``bonus``, after ``patience`` steps in a row at ``success`` or more.

    Args:
        goal: uint8 RGB picture ``[h, w, 3]`` of any size, framed as the world's pictures are.
        gamma: discount of the learning algorithm.
        success: potential that counts as being there, in (0, 1].
        patience: steps in a row.
        bonus: reward at the end.
    """

    name = "goal image"
    _state = ("potential", "streak")

    def __init__(
        self, goal: np.ndarray, gamma: float = 0.99, success: float = 0.95, patience: int = 3, bonus: float = 1.0
    ) -> None:
        goal = as_array(goal)
        if goal.dtype != np.uint8 or goal.ndim != 3 or goal.shape[2] != 3:
            raise ValueError(f"the goal is {goal.dtype} {list(goal.shape)}; give an RGB picture, uint8 [h, w, 3]")
        if not 0 < success <= 1:
            raise ValueError(f"success is {success}; give a potential above 0 and up to 1")
        if patience < 1:
            raise ValueError(f"patience is {patience}; it takes at least 1 step to arrive")
        self.goal = coarse(goal[None])
        self.gamma, self.success, self.patience, self.bonus = gamma, success, patience, bonus

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        """Take the potential of the slots' first pictures."""
        self._clear(mask, {"potential": ((), np.float64), "streak": ((), np.int64)})
        self.potential[mask] = self._closeness(context.frames[:, -1])[mask]

    def __call__(self, context: TaskContext) -> RewardOut:
        """Progress of the newest frame towards the goal."""
        potential = self._closeness(context.frames[:, -1])
        progress = self.gamma * potential - self.potential
        self.streak = np.where(potential >= self.success, self.streak + 1, 0)
        arrived = self.streak >= self.patience
        self.potential = potential
        reached = self.bonus * arrived
        return RewardOut(progress + reached, arrived, {"progress": progress, "success": reached})

    def _closeness(self, frames: np.ndarray) -> np.ndarray:
        return 1 - np.sqrt(np.square(coarse(frames) - self.goal).mean(1, dtype=np.float64))


class Callback:
    """Reward from a function of the `TaskContext`.

    Args:
        function: returns the rewards ``[B]``, or one number for all slots, or a whole `RewardOut`.
        name: for `info["reward_source"]`; by default the function's own.
    """

    def __init__(self, function: Callable[[TaskContext], Any], name: str | None = None) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        """Nothing to do: the function keeps its own state, if any."""

    def __call__(self, context: TaskContext) -> RewardOut:
        """The function's word."""
        out = self.function(context)
        if isinstance(out, RewardOut):
            return out
        reward = np.asarray(as_array(out), dtype=np.float64)
        slots = len(context.steps)
        if reward.shape not in ((), (slots,)):
            raise ValueError(f"the reward function {self.name} returned the shape {reward.shape}; return ({slots},)")
        return RewardOut(np.broadcast_to(reward, (slots,)), np.zeros(slots, dtype=bool))

    def state_dict(self) -> dict[str, Any]:
        """Empty: a function's own state is its owner's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to take back."""


class Constant(Callback):
    """The same reward at every step and no end, for play, for recording, or to leave the judging to others."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__(self._constant, f"constant {value:g}")
        self.value = float(value)

    def _constant(self, context: TaskContext) -> float:
        return self.value


class Composite:
    """A weighted sum of tasks by name; an episode ends when one of them ends it.

    Args:
        parts: the tasks, as `make_task` takes them; each belongs to this one alone.
        weights: factors of their rewards, 1 where none is given.
    """

    def __init__(self, parts: Mapping[str, Any], weights: Mapping[str, float] | None = None) -> None:
        weights = dict(weights or {})
        if not parts or set(weights) - set(parts):
            raise ValueError(f"the weights are for {sorted(weights)} and the parts are {sorted(parts)}; name the parts")
        self.parts = {name: make_task(part) for name, part in parts.items()}
        self.weights = {name: float(weights.get(name, 1.0)) for name in parts}
        self.name = " + ".join(f"{weight:g} {name}" for name, weight in self.weights.items())

    def bind(self, world: Any) -> None:
        """Give every part the world, see `bind_task`."""
        for part in self.parts.values():
            bind_task(part, world)

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        """Reset every part."""
        for part in self.parts.values():
            part.reset(mask, context)

    def __call__(self, context: TaskContext) -> RewardOut:
        """The sum; terms are named ``part.term``, and the least confident part speaks for all."""
        outs = {name: part(context) for name, part in self.parts.items()}
        terms = {f"{name}.{term}": value for name, out in outs.items() for term, value in out.terms.items()}
        confidences = [out.confidence for out in outs.values() if out.confidence is not None]
        return RewardOut(
            sum(self.weights[name] * np.asarray(out.reward, dtype=np.float64) for name, out in outs.items()),
            np.logical_or.reduce([out.terminated for out in outs.values()]),
            terms,
            np.minimum.reduce(confidences) if confidences else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """The parts' states by name."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


TASKS: dict[str, Callable[[], RewardSource]] = {"explore": Exploration, "constant": Constant}


def make_task(task: str | RewardSource | Callable[[TaskContext], Any]) -> RewardSource:
    """A task by name, a task as it is, or a function of the `TaskContext` as a task.

    Raises:
        ValueError: for an unknown name or something that is none of these.
    """
    from wp2env.event_task import EventHappened  # here, because these two build on this module
    from wp2env.named_tasks import NAMED_TASKS

    known = TASKS | {EventHappened.name: EventHappened} | NAMED_TASKS
    if isinstance(task, str) and task in known:
        return known[task]()
    if isinstance(task, RewardSource) and not isinstance(task, type):
        return task
    if callable(task) and not isinstance(task, type):
        return Callback(task)
    raise ValueError(
        f"the task {task!r:.60} is not known; name one of {', '.join(known)}, or give a RewardSource such as "
        "GoalImage(picture), or a function of the TaskContext that returns rewards"
    )


def bind_task(task: RewardSource, world: Any) -> None:
    """Hand a task the world that it will judge, if the task wants to know it: if it has a method ``bind(world)``.

    Raises:
        ValueError: from the task, when the world lacks what it needs.
    """
    if hasattr(task, "bind"):
        task.bind(world)


def coarse(frames: np.ndarray) -> np.ndarray:
    """Frames uint8 ``[B, H, W, 3]`` as mean colours of an 8x8 grid, float32 ``[B, 192]`` in [0, 1]."""
    cells = [cv2.resize(frame, (GRID, GRID), interpolation=cv2.INTER_AREA) for frame in frames.astype(np.float32)]
    return np.stack(cells).reshape(len(frames), -1) / 255
