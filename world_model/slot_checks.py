"""What every stream asks of the slots and the actions that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from world_model.controls import ACTION_DIM, PERSPECTIVE, StructuredCaption


def check_stream(num_slots: int, temperature: float) -> None:
    """Raise a ValueError for a number of slots or a temperature that no stream can have."""
    if num_slots < 1:
        raise ValueError(f"num_slots is {num_slots}; a stream needs at least 1")
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}; it scales noise and must be 0 or more")


def check_slots(slots: Sequence[int], num_slots: int) -> None:
    """Raise a ValueError for a slot that does not exist."""
    for slot in slots:
        if not 0 <= slot < num_slots:
            raise ValueError(f"slot {slot} does not exist; this stream has {num_slots}, numbered from 0")


def check_lengths(slots: Sequence[int], *lists: Sequence[Any]) -> None:
    """Raise a ValueError unless there is one value for each slot in each list."""
    if any(len(values) != len(slots) for values in lists):
        raise ValueError(f"{len(slots)} slots need as many starts, captions and seeds, not {[*map(len, lists)]}")


def check_begun(generators: Sequence[Any]) -> None:
    """Raise a RuntimeError for a slot that has no generator, since it was never reset."""
    missing = [slot for slot, generator in enumerate(generators) if generator is None]
    if missing:
        raise RuntimeError(f"slot {missing[0]} was never reset; call reset before step")


def changed_captions(
    captions: Sequence[StructuredCaption | None], slots: Sequence[int], **fields: str | None
) -> dict[int, StructuredCaption]:
    """The captions of the given slots with the given fields exchanged; None leaves a field as it is.

    Raises:
        ValueError: for a slot that does not exist.
        RuntimeError: for a slot that was never reset.
    """
    changes = {name: text for name, text in fields.items() if text is not None}
    check_slots(slots, len(captions))
    for slot in slots:
        if captions[slot] is None:
            raise RuntimeError(f"slot {slot} was never reset; call reset before set_caption")
    return {slot: captions[slot].replace(**changes) for slot in slots}


def action_batch(actions: np.ndarray | Tensor, num_slots: int, latents: int) -> Tensor:
    """Action rows as float32 ``[num_slots, latents, 6]``.

    Raises:
        ValueError: for another shape, or values that are not finite.
    """
    expected = (num_slots, latents, ACTION_DIM)
    actions = torch.as_tensor(actions, dtype=torch.float32)
    if tuple(actions.shape) != expected:
        raise ValueError(f"actions have the shape {tuple(actions.shape)}; this stream takes {expected}")
    if not bool(actions.isfinite().all()):
        raise ValueError("actions hold a value that is not finite; give degrees and flags")
    return actions


def start_rows(rows: np.ndarray | Tensor | None, count: int) -> Tensor:
    """Action rows float32 ``[count, 6]`` of a start of ``count`` latents; None: idle, in first person.

    Raises:
        ValueError: for another shape.
    """
    if rows is None:
        rows = torch.zeros(count, ACTION_DIM)
        rows[:, PERSPECTIVE] = 1
    rows = torch.as_tensor(rows, dtype=torch.float32)
    if tuple(rows.shape) != (count, ACTION_DIM):
        raise ValueError(
            f"the action rows of a start of {count} latents have the shape {tuple(rows.shape)}; give ({count}, 6)"
        )
    return rows


def generator_at(state: Tensor) -> torch.Generator:
    """A generator in a state that `torch.Generator.get_state` gave."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def frames_tensor(frames: np.ndarray | Tensor) -> Tensor:
    """Frames or latents of any shape as a tensor; a copy of an array, since a recording's are read-only."""
    return torch.tensor(frames) if isinstance(frames, np.ndarray) else torch.as_tensor(frames)
