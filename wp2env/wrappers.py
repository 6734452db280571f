"""Wrappers that an agent may want around the environment."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from wp2env.starts import CAPTION_FIELDS


class CaptionObservation(gymnasium.Wrapper, RecordConstructorArgs):
    """Observations ``{"frame", "scene", "character", "event"}``: the picture and the caption in force, as texts.

    For agents that read; stable-baselines3 takes no texts. The ``Text`` spaces hold printable ASCII: other characters
    become "?", and a text is cut after ``max_length`` characters. ``info["caption"]`` keeps the whole caption.
    """

    def __init__(self, env: gymnasium.Env, max_length: int = 256) -> None:
        if max_length < 1:
            raise ValueError(f"max_length is {max_length}; texts need at least 1 character")
        RecordConstructorArgs.__init__(self, max_length=max_length)
        gymnasium.Wrapper.__init__(self, env)
        self.max_length = max_length
        text = {name: spaces.Text(max_length, min_length=0, charset=string.printable) for name in CAPTION_FIELDS}
        self.observation_space = spaces.Dict({"frame": env.observation_space, **text})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Reset, with the caption beside the picture."""
        frame, info = self.env.reset(seed=seed, options=options)
        return self._observation(frame, info), info

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        """Step, with the caption beside the picture."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        return self._observation(frame, info), reward, terminated, truncated, info

    def _observation(self, frame: Any, info: dict[str, Any]) -> dict[str, Any]:
        return {"frame": frame, **{name: self._text(info["caption"][name]) for name in CAPTION_FIELDS}}

    def _text(self, text: str) -> str:
        return "".join(letter if letter in string.printable else "?" for letter in text[: self.max_length])
