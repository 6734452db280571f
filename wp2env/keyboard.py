"""Keys to actions, in the form that `gymnasium.utils.play` takes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from world_model.controls import ACTION_DIM, JUMP, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW
from wp2env.spaces import ChunkActions, Turns, batch_of_one

# SDL's key codes, written out so that no window library is needed to ask for the mapping.
ARROW_RIGHT, ARROW_LEFT, ARROW_DOWN, ARROW_UP = 0x4000004F, 0x40000050, 0x40000051, 0x40000052
W, A, S, D, V, SPACE = map(ord, "wasdv ")


def keys_to_action(actions: ChunkActions, turns: Turns, view: int) -> dict[tuple[int, ...], Any]:
    """Every combination of keys that the action space can express, as sorted key codes, with its action.

    w/s forward and back, a/d left and right, arrows the camera, space a jump; v shows the other perspective than
    ``view`` while it is held.
    """
    pairs = (
        ((LONGITUDINAL, 1, W), (LONGITUDINAL, -1, S)),
        ((LATERAL, 1, D), (LATERAL, -1, A)),
        ((YAW, turns.max_yaw, ARROW_RIGHT), (YAW, -turns.max_yaw, ARROW_LEFT)),
        ((PITCH, turns.max_pitch, ARROW_UP), (PITCH, -turns.max_pitch, ARROW_DOWN)),
        ((JUMP, 1, SPACE),),
        ((PERSPECTIVE, 1 - view, V),),
    )
    mapping = {}
    for pressed in itertools.product(*((None, *pair) for pair in pairs)):
        held = [key for key in pressed if key is not None]
        row = np.zeros(ACTION_DIM, dtype=np.float32)
        row[PERSPECTIVE] = view
        for column, value, _ in held:
            row[column] = value
        action = actions.action(row, view)
        rows, _ = actions.read(batch_of_one(action), np.array([view]))
        if held and np.allclose(rows[0, 0], row, atol=1e-3):
            mapping[tuple(sorted(code for _, _, code in held))] = action
    return mapping
