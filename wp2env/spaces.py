"""Action spaces, and how an action of each becomes the six-column row that the world reads.

A mode describes the action of one latent frame. `ChunkActions` makes it the action of one environment step, which is
a chunk of latents. All readers check an action whole before they return, and change nothing.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from world_model.controls import (
    ACTION_COLUMNS,
    ACTION_DIM,
    JUMP,
    LATERAL,
    LONGITUDINAL,
    PERSPECTIVE,
    PITCH,
    YAW,
)

MAX_EVENT = 192  # characters of an event in an action, as many bytes as the bundled caption encoder reads of a field
PRESSED = 1 / 3  # of a Box value: [-1, 1] in three equal parts
SIGNED, FLAGS = (LONGITUDINAL, LATERAL), (PERSPECTIVE, JUMP)


@dataclass(frozen=True)
class Turns:
    """What a full deflection of the camera means: degrees per latent frame, and the steps of "multidiscrete"."""

    max_pitch: float = 15.0
    max_yaw: float = 20.0
    pitch_bins: int = 3
    yaw_bins: int = 5

    def __post_init__(self) -> None:
        for name in ("max_pitch", "max_yaw"):
            if not 0 < getattr(self, name) <= 180:
                raise ValueError(f"{name} is {getattr(self, name)}; give degrees per latent above 0 and up to 180")
        for name in ("pitch_bins", "yaw_bins"):
            if getattr(self, name) < 1 or getattr(self, name) % 2 == 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give an odd number, so that one bin is 'no turn'")

    @property
    def degrees(self) -> np.ndarray:
        """Full deflection ``[pitch, yaw]`` in degrees."""
        return np.array([self.max_pitch, self.max_yaw], dtype=np.float32)

    def bins(self) -> tuple[np.ndarray, np.ndarray]:
        """Degrees of every pitch bin and of every yaw bin; a single bin is no turn."""
        return _bins(self.max_pitch, self.pitch_bins), _bins(self.max_yaw, self.yaw_bins)


class DictActions:
    """``Dict(camera: Box(2), longitudinal: Discrete(3), lateral: Discrete(3), perspective, jump: Discrete(2))``.

    ``camera`` is ``[pitch, yaw]`` in [-1, 1], up and right positive; ``longitudinal`` is 0 back, 1 stay, 2 forward;
    ``lateral`` is 0 left, 1 stay, 2 right; ``perspective`` is the view wanted now, 0 third person, 1 first person.
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.space = spaces.Dict(
            {
                "camera": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "longitudinal": spaces.Discrete(3),
                "lateral": spaces.Discrete(3),
                "perspective": spaces.Discrete(2),
                "jump": spaces.Discrete(2),
            }
        )

    def rows(self, actions: Mapping[str, Any], views: np.ndarray) -> np.ndarray:
        """Rows ``[B, 6]`` of the batched actions; ``views [B]`` are the perspectives before them."""
        rows = np.empty((len(views), ACTION_DIM), dtype=np.float32)
        rows[:, [PITCH, YAW]] = _unit("camera", actions["camera"], (len(views), 2)) * self.turns.degrees
        for column in SIGNED:
            rows[:, column] = _whole(ACTION_COLUMNS[column], actions[ACTION_COLUMNS[column]], (len(views),), 3) - 1
        for column in FLAGS:
            rows[:, column] = _whole(ACTION_COLUMNS[column], actions[ACTION_COLUMNS[column]], (len(views),), 2)
        return rows

    def action(self, row: np.ndarray, view: int) -> dict[str, Any]:
        """The action nearest to a row ``[6]``."""
        camera = np.clip(row[[PITCH, YAW]] / self.turns.degrees, -1, 1).astype(np.float32)
        signs = {ACTION_COLUMNS[column]: np.int64(round(float(row[column])) + 1) for column in SIGNED}
        flags = {ACTION_COLUMNS[column]: np.int64(round(float(row[column]))) for column in FLAGS}
        return {"camera": camera, **signs, **flags}


class MultiDiscreteActions:
    """``MultiDiscrete([yaw_bins, pitch_bins, 3, 3, 2, 2])``: yaw, pitch, longitudinal, lateral, perspective, jump.

    Bins run from full left (down) to full right (up); the others are as in `DictActions`.
    """

    order = (YAW, PITCH, LONGITUDINAL, LATERAL, PERSPECTIVE, JUMP)

    def __init__(self, turns: Turns) -> None:
        pitch, yaw = turns.bins()
        signs, flags = np.array([-1, 0, 1], dtype=np.float32), np.array([0, 1], dtype=np.float32)
        self.values = (yaw, pitch, signs, signs, flags, flags)
        self.space = spaces.MultiDiscrete([len(values) for values in self.values])

    def rows(self, actions: Any, views: np.ndarray) -> np.ndarray:
        """Rows ``[B, 6]`` of the batched actions ``[B, 6]``."""
        digits = _whole("the action", actions, (len(views), ACTION_DIM), self.space.nvec)
        rows = np.empty((len(views), ACTION_DIM), dtype=np.float32)
        for place, (column, values) in enumerate(zip(self.order, self.values, strict=True)):
            rows[:, column] = values[digits[:, place]]
        return rows

    def action(self, row: np.ndarray, view: int) -> np.ndarray:
        """The action nearest to a row ``[6]``."""
        nearest = [
            np.abs(values - row[column]).argmin() for column, values in zip(self.order, self.values, strict=True)
        ]
        return np.array(nearest, dtype=np.int64)


class DiscreteActions:
    """``Discrete(13)``: one choice of `menu` per latent; "switch view" changes to the other perspective."""

    menu = (
        "idle",
        "forward",
        "back",
        "left",
        "right",
        "turn left",
        "turn right",
        "look up",
        "look down",
        "forward and turn left",
        "forward and turn right",
        "jump",
        "switch view",
    )

    def __init__(self, turns: Turns) -> None:
        self.table = np.zeros((len(self.menu), ACTION_DIM), dtype=np.float32)
        for place, choice in enumerate(self.menu):
            words = choice.split()
            self.table[place, LONGITUDINAL] = ("forward" in words) - ("back" in words)
            if "turn" in words:
                self.table[place, YAW] = turns.max_yaw * (("right" in words) - ("left" in words))
            else:
                self.table[place, LATERAL] = ("right" in words) - ("left" in words)
            self.table[place, PITCH] = turns.max_pitch * (("up" in words) - ("down" in words))
            self.table[place, JUMP] = "jump" in words
            self.table[place, PERSPECTIVE] = "switch" in words
        self.scale = np.array([1 / turns.max_pitch, 1 / turns.max_yaw, 1, 1, 1, 1], dtype=np.float32)
        self.space = spaces.Discrete(len(self.menu))

    def rows(self, actions: Any, views: np.ndarray) -> np.ndarray:
        """Rows ``[B, 6]`` of the batched actions ``[B]``; ``views [B]`` are the perspectives before them."""
        rows = self.table[_whole("the action", actions, (len(views),), len(self.menu))]
        rows[:, PERSPECTIVE] = np.abs(rows[:, PERSPECTIVE] - views)
        return rows

    def action(self, row: np.ndarray, view: int) -> np.int64:
        """The action nearest to a row ``[6]``, seen from a perspective."""
        choices = self.rows(np.arange(len(self.menu)), np.full(len(self.menu), view))
        return np.int64((((choices - row) * self.scale) ** 2).sum(1).argmin())


class BoxActions:
    """``Box(-1, 1, (6,))`` in the row's order.

    Pitch and yaw are scaled to degrees. Longitudinal and lateral beyond +-1/3 are a step; jump above 1/3 is a jump;
    perspective above 1/3 is first person, below -1/3 third person, and in between it stays as it is.
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.space = spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)

    def rows(self, actions: Any, views: np.ndarray) -> np.ndarray:
        """Rows ``[B, 6]`` of the batched actions ``[B, 6]``; ``views [B]`` are the perspectives before them."""
        values = _unit("the action", actions, (len(views), ACTION_DIM))
        rows = ((values > PRESSED).astype(np.float32)) - (values < -PRESSED)
        rows[:, [PITCH, YAW]] = values[:, [PITCH, YAW]] * self.turns.degrees
        rows[:, JUMP] = rows[:, JUMP] > 0
        rows[:, PERSPECTIVE] = np.where(rows[:, PERSPECTIVE] == 0, views, rows[:, PERSPECTIVE] > 0)
        return rows

    def action(self, row: np.ndarray, view: int) -> np.ndarray:
        """The action nearest to a row ``[6]``."""
        action = np.clip(row, -1, 1).astype(np.float32)
        action[[PITCH, YAW]] = np.clip(row[[PITCH, YAW]] / self.turns.degrees, -1, 1)
        action[list(FLAGS)] = 2 * row[list(FLAGS)] - 1
        return action


ACTION_MODES = {
    "dict": DictActions,
    "multidiscrete": MultiDiscreteActions,
    "discrete": DiscreteActions,
    "box": BoxActions,
    "hybrid": DictActions,  # and an event, which belongs to the chunk and not to a latent
}


class ChunkActions:
    """The action of one environment step: a mode's action held over a chunk, or one for each of its latents.

    ``space`` is the single-slot action space. With ``per_latent`` every part of it has a leading axis of ``latents``
    entries; "multidiscrete" is then flat, ``latents * 6`` digits, since few libraries take two axes.
    """

    def __init__(self, mode: str, turns: Turns, latents: int, per_latent: bool) -> None:
        if mode not in ACTION_MODES:
            raise ValueError(f"action_mode is {mode!r}; choose one of {', '.join(ACTION_MODES)}")
        self.mode = ACTION_MODES[mode](turns)
        self.latents, self.per_latent = latents, per_latent
        self.flat = per_latent and mode == "multidiscrete"
        space = self.mode.space
        if self.flat:
            space = spaces.MultiDiscrete(np.tile(space.nvec, latents))
        elif per_latent:
            space = batch_space(space, latents)
        self.event = None
        if mode == "hybrid":
            self.event = spaces.Text(MAX_EVENT, min_length=0, charset=string.printable)
            space = spaces.Dict({**space.spaces, "event": self.event})
        self.space = space

    def read(self, actions: Any, views: np.ndarray) -> tuple[np.ndarray, Sequence[str]]:
        """Rows float32 ``[B, n, 6]`` and ``B`` events of the batched actions ("" keeps the event in force).

        Raises:
            ValueError: for actions outside the space; the message names the value, the limit and the slot.
        """
        self._check_keys(actions)
        events: Sequence[str] = [""] * len(views)
        if self.event is not None:
            events = self._events(actions["event"], len(views))
            actions = {name: value for name, value in actions.items() if name != "event"}
        if not self.per_latent:
            return np.repeat(self.mode.rows(actions, views)[:, None], self.latents, axis=1), events
        rows = []
        for latent in range(self.latents):
            rows.append(self.mode.rows(self._latent(actions, latent, len(views)), views))
            views = rows[-1][:, PERSPECTIVE]
        return np.stack(rows, axis=1), events

    def action(self, row: np.ndarray, view: int) -> Any:
        """The single-slot action nearest to holding a row ``[6]``, seen from a perspective."""
        action = self.mode.action(np.asarray(row, dtype=np.float32), view)
        if self.flat:
            action = np.tile(action, self.latents)
        elif self.per_latent and isinstance(action, dict):
            action = {name: np.stack([value] * self.latents) for name, value in action.items()}
        elif self.per_latent:
            action = np.stack([action] * self.latents)
        return {**action, "event": ""} if self.event is not None else action

    def _check_keys(self, actions: Any) -> None:
        if not isinstance(self.space, spaces.Dict):
            if isinstance(actions, Mapping):
                raise ValueError(f"the action is a dict; this action mode takes an array for {self.space}")
            return
        known = set(self.space.spaces)
        if not isinstance(actions, Mapping):
            raise ValueError(f"the action is a {type(actions).__name__}; give a dict of {', '.join(sorted(known))}")
        if set(actions) != known:
            wrong = ", ".join(map(repr, sorted(set(actions) ^ known, key=str)))
            raise ValueError(f"the action's keys differ in {wrong}; give exactly {', '.join(sorted(known))}")

    def _events(self, events: Any, slots: int) -> Sequence[str]:
        if isinstance(events, str) or len(events) != slots:
            raise ValueError(f"the action's event must hold {slots} texts, one per slot, not {events!r:.60}")
        for slot, text in enumerate(events):
            if text not in self.event:
                raise ValueError(
                    f"the event of slot {slot} is {text!r:.60}; the action space takes up to {MAX_EVENT} printable "
                    "ASCII characters, set_event takes any text"
                )
        return events

    def _latent(self, actions: Any, latent: int, slots: int) -> Any:
        if isinstance(actions, Mapping):
            return {name: self._at(f"the action's {name}", value, latent) for name, value in actions.items()}
        if self.flat:
            actions = as_array(actions)
            if actions.shape != (slots, self.latents * ACTION_DIM):
                raise ValueError(f"the action has the shape {actions.shape}; give {(slots, self.latents * ACTION_DIM)}")
            actions = actions.reshape(slots, self.latents, ACTION_DIM)
        return self._at("the action", actions, latent)

    def _at(self, name: str, value: Any, latent: int) -> np.ndarray:
        value = as_array(value)
        if value.ndim < 2 or value.shape[1] != self.latents:
            raise ValueError(f"{name} has the shape {value.shape}; give one entry for each of {self.latents} latents")
        return value[:, latent]


def as_array(value: Any) -> np.ndarray:
    """A NumPy array of an array, a number or a tensor on any device."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def batch_of_one(action: Any) -> Any:
    """A single-slot action as the actions of a batch of one."""
    if isinstance(action, Mapping):
        return {name: (value,) if isinstance(value, str) else as_array(value)[None] for name, value in action.items()}
    return as_array(action)[None]


def _bins(limit: float, count: int) -> np.ndarray:
    return np.linspace(-limit, limit, count, dtype=np.float32) if count > 1 else np.zeros(1, dtype=np.float32)


def _shaped(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    value = as_array(value)
    if value.shape != shape:
        raise ValueError(f"{name} has the shape {value.shape}; give {shape}, the first axis is the slots")
    return value


def _unit(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    value = _shaped(name, value, shape)
    if value.dtype.kind not in "fiu":
        raise ValueError(f"{name} is of type {value.dtype}; give numbers from -1 to 1")
    value = value.astype(np.float32)
    outside = np.argwhere(~(np.abs(value) <= 1))
    if len(outside):
        slot = outside[0][0]
        raise ValueError(f"{name} is {value[tuple(outside[0])]} in slot {slot}; give numbers from -1 to 1")
    return value


def _whole(name: str, value: Any, shape: tuple[int, ...], count: Any) -> np.ndarray:
    value = _shaped(name, value, shape)
    if value.dtype.kind not in "iub":
        raise ValueError(f"{name} is of type {value.dtype}; give whole numbers")
    value = value.astype(np.int64)
    outside = np.argwhere((value < 0) | (value >= count))
    if len(outside):
        place = tuple(outside[0])
        limit = np.broadcast_to(count, shape)[place] - 1
        raise ValueError(f"{name} is {value[place]} in slot {place[0]}; give 0 to {limit}")
    return value
