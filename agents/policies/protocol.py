"""What every policy offers, and the check that all of them make of their observations."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Policy(Protocol):
    """Chooses actions for ``B`` slots from their pictures alone, so that it runs in every world.

    Attributes:
        action_mode: the action space that it speaks, as in `wp2env.spaces.ACTION_MODES`.
    """

    action_mode: str

    def reset(self, mask: np.ndarray) -> None:
        """The slots of ``mask`` (bool ``[B]``) begin a new episode."""

    def act(self, observations: np.ndarray) -> Any:
        """A batch of actions for the newest frames, uint8 ``[B, H, W, 3]``.

        Raises:
            ValueError: for observations of another shape or type.
        """


def check_pictures(name: str, observations: np.ndarray, num_envs: int, size: tuple[int, int] | None = None) -> None:
    """Refuse observations that are no batch of pictures, or of another size ``(H, W)`` than a policy knows.

    Raises:
        ValueError: naming what is given and what is needed.
    """
    height, width = size or ("height", "width")
    shape = getattr(observations, "shape", ())
    fits = len(shape) == 4 and shape[0] == num_envs and shape[3] == 3 and (size is None or shape[1:3] == tuple(size))
    if not fits or observations.dtype != np.uint8:
        kind = f"{observations.dtype} {list(shape)}" if shape else type(observations).__name__
        raise ValueError(
            f"the policy {name} was shown {kind}; it takes uint8 [{num_envs}, {height}, {width}, 3], a picture per slot"
        )
