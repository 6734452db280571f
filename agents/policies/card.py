"""What a trained policy says about itself, in `policy.json` beside its weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from world_model.data.store import write_json

CARD = "policy.json"
STABLE_BASELINES = "policy.zip"
CLONED = "policy.safetensors"
CLONING = "cloning"
ALGORITHMS = ("ppo", "a2c", "dqn", "recurrent-ppo")  # of Stable-Baselines3
ACTION_MODES = ("discrete", "multidiscrete", "box")


@dataclass(frozen=True)
class PolicyCard:
    """How a policy was made, and what it needs to run."""

    algorithm: str  # one of `ALGORITHMS`, or `CLONING`
    action_mode: str
    frame_size: tuple[int, int]  # height and width of the pictures that it takes
    frame_stack: int  # newest pictures that it is shown together
    task: str  # what it was trained for
    place: str  # "world", "game" or "recordings"
    world: str  # which one
    steps: int  # environment steps or, in recordings, gradient steps
    seed: int

    def save(self, folder: Path) -> None:
        """Write the card into a policy's folder."""
        write_json(folder / CARD, asdict(self))


def read_card(folder: Path) -> PolicyCard:
    """The card of a policy's folder.

    Raises:
        ValueError: when there is none, or it is damaged.
    """
    file = folder / CARD
    try:
        fields = json.loads(file.read_text())
        card = PolicyCard(**{**fields, "frame_size": tuple(map(int, fields["frame_size"]))})
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no {CARD}; give a folder that wp2 train-agent or wp2 clone wrote") from None
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise ValueError(f"{file} is no policy's card ({error}); train the policy again") from error
    known = (*ALGORITHMS, CLONING)
    if card.algorithm not in known or card.action_mode not in ACTION_MODES or len(card.frame_size) != 2:
        raise ValueError(
            f"{file} tells of {card.algorithm!r} with {card.action_mode!r} actions; known are {', '.join(known)} with "
            f"{', '.join(ACTION_MODES)}"
        )
    if not isinstance(card.frame_stack, int) or card.frame_stack < 1:
        raise ValueError(f"{file} tells of {card.frame_stack!r} pictures together; a policy takes at least 1")
    return card
