"""Controls: what goes into the world at each latent frame.

A control is ``A_t = {a_t, d_t}`` (WorldPlay2, section "control", Eq. 1 and Eq. 3): a frame-aligned
action row ``a_t`` and a structured caption ``d_t``.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace

import numpy as np

ACTION_COLUMNS = ("pitch", "yaw", "longitudinal", "lateral", "perspective", "jump")
ACTION_DIM = len(ACTION_COLUMNS)
PITCH, YAW, LONGITUDINAL, LATERAL, PERSPECTIVE, JUMP = range(ACTION_DIM)
THIRD_PERSON, FIRST_PERSON = 0, 1
NOTHING = "None"  # the published template's word for "no character" and "no event"
_CAPTION_TEXT = re.compile(
    r"The scene in the video is: (?P<scene>.*?)\."
    r"(?: The character is: (?P<character>.*?)\.)?"
    r"(?: The event is: (?P<event>.*?)\.)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class FrameAction:
    """One latent frame's action: the change that leads *to* this frame from the one before.

    ``pitch`` and ``yaw`` are degrees over the latent frame, up and right positive; ``longitudinal`` and
    ``lateral`` are -1, 0 or 1 with forward and right positive; ``perspective`` is 0 (third person) or
    1 (first person); ``jump`` is 0 or 1.
    """

    pitch: float = 0.0
    yaw: float = 0.0
    longitudinal: int = 0
    lateral: int = 0
    perspective: int = FIRST_PERSON
    jump: int = 0

    def row(self) -> np.ndarray:
        """The action as a float32 row ``[6]`` in the order of ``ACTION_COLUMNS``."""
        return np.array([getattr(self, name) for name in ACTION_COLUMNS], dtype=np.float32)

    @classmethod
    def from_row(cls, row) -> FrameAction:
        """The inverse of `row`; discrete columns are rounded."""
        pitch, yaw, *discrete = (float(value) for value in row)
        return cls(pitch, yaw, *(int(round(value)) for value in discrete))


@dataclass(frozen=True)
class StructuredCaption:
    """The structured caption ``d_t = (scene, character, event)`` (Eq. 3).

    ``scene`` is the lasting place, ``character`` the controlled figure ("None" in first person),
    ``event`` what changes now ("None" when nothing does).
    """

    scene: str
    character: str = NOTHING
    event: str = NOTHING

    def as_dict(self) -> dict[str, str]:
        """A fresh ``{"scene", "character", "event"}`` dictionary."""
        return asdict(self)

    def replace(self, **fields: str) -> StructuredCaption:
        """A caption with the given fields exchanged and the others kept."""
        return replace(self, **fields)

    def text(self) -> str:
        """The caption as one text in the published template; sentences about nothing are left out.

        >>> StructuredCaption("a stone hall", event="the lights go out").text()
        'The scene in the video is: a stone hall. The event is: the lights go out.'
        """
        text = f"The scene in the video is: {self.scene}."
        if self.character != NOTHING:
            text += f" The character is: {self.character}."
        if self.event != NOTHING:
            text += f" The event is: {self.event}."
        return text

    @classmethod
    def from_text(cls, text: str) -> StructuredCaption:
        """The inverse of `text`, for fields that hold none of the template's own sentence openings.

        Raises:
            ValueError: for a text that does not follow the template.
        """
        match = _CAPTION_TEXT.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text[:60]!r} does not follow the caption template; write 'The scene in the video is: ... .', then "
                "optionally 'The character is: ... .' and 'The event is: ... .'"
            )
        return cls(**{name: value for name, value in match.groupdict().items() if value is not None})
