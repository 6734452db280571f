"""Control scripts: what to do, what to see and what happens, as short strings.

The grammar is the published one: segments ``value-duration`` separated by commas, the duration in latent frames
after the segment's last hyphen; empty segments and spaces around a value are skipped. Three kinds of script share it:

- actions, ``"w-32,wa+left-8,none-4"``: what the controls do, in any case (`parse_actions`, `action_rows`);
- events, ``"None-16,the lights go out-12"``: a text, or the name of one, for each stretch (`parse_schedule`);
- views, ``"tps-16,fps-16"``: the perspective, third or first person (`perspective_column`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from world_model.controls import (
    ACTION_DIM,
    FIRST_PERSON,
    JUMP,
    LATERAL,
    LONGITUDINAL,
    PERSPECTIVE,
    PITCH,
    THIRD_PERSON,
    YAW,
)

CONTROLS = {  # token -> the kind of control, of which a segment takes one, and what it sets
    "w": ("movement", {"longitudinal": 1, "lateral": 0}),
    "s": ("movement", {"longitudinal": -1, "lateral": 0}),
    "a": ("movement", {"longitudinal": 0, "lateral": -1}),
    "d": ("movement", {"longitudinal": 0, "lateral": 1}),
    "wa": ("movement", {"longitudinal": 1, "lateral": -1}),
    "wd": ("movement", {"longitudinal": 1, "lateral": 1}),
    "sa": ("movement", {"longitudinal": -1, "lateral": -1}),
    "sd": ("movement", {"longitudinal": -1, "lateral": 1}),
    "left": ("turn", {"turn": -1}),
    "right": ("turn", {"turn": 1}),
    "up": ("tilt", {"tilt": 1}),
    "down": ("tilt", {"tilt": -1}),
    "space": ("jump", {"jump": 1}),
}
IDLE = "none"
VIEWS = {"tps": THIRD_PERSON, "fps": FIRST_PERSON}
DEFAULT_DEGREES = 3.0  # per latent frame, the published default for both camera axes
MAX_LATENTS = 1_000_000  # of one script: more than a day of video, and a bound on what a typing error can allocate
_DURATION = re.compile(r"[1-9][0-9]*")


class ControlScriptError(ValueError):
    """A control script that does not parse.

    ``token`` is the offending text, ``position`` its character offset in ``script`` and ``segment`` the index,
    from 0, of the comma-separated segment that holds it.
    """

    def __init__(self, script: str, segment: int, position: int, token: str, problem: str) -> None:
        shown = token if len(token) <= 40 else token[:37] + "..."
        super().__init__(f"segment {segment} of the control script, at character {position}: {shown!r} {problem}")
        self.script, self.segment, self.position, self.token = script, segment, position, token


@dataclass(frozen=True)
class Stretch:
    """One ``value-duration`` segment: the value's text, its duration in latents and where it stands."""

    value: str
    latents: int
    segment: int = 0
    position: int = 0


@dataclass(frozen=True)
class Command:
    """Controls held for ``latents`` latent frames: -1, 0 or 1 each, ``jump`` 0 or 1. Forward, right, turning right
    and tilting up are positive."""

    latents: int
    longitudinal: int = 0
    lateral: int = 0
    turn: int = 0
    tilt: int = 0
    jump: int = 0


def split_script(script: str) -> list[Stretch]:
    """Cut a script into its segments.

    Raises:
        ControlScriptError: for a segment without a duration, a duration that is not a plain positive number, an empty
            script, or one of more than `MAX_LATENTS` latents.
    """
    stretches: list[Stretch] = []
    position, total = 0, 0
    for segment, text in enumerate(script.split(",")):
        start, position = position + len(text) - len(text.lstrip()), position + len(text) + 1
        text = text.strip()
        if not text:
            continue
        value, hyphen, duration = text.rpartition("-")
        if not hyphen:
            problem = f"has no duration; write it as {text[:20]}-8, with the number of latent frames after a hyphen"
            raise ControlScriptError(script, segment, start, text, problem)
        at = start + len(value) + 1
        at, duration = at + len(duration) - len(duration.lstrip()), duration.strip()
        if not _DURATION.fullmatch(duration):
            problem = "is not a duration; give latent frames as a whole number from 1 on, without sign or leading zero"
            raise ControlScriptError(script, segment, at, duration, problem)
        total += int(duration) if len(duration) <= len(str(MAX_LATENTS)) else MAX_LATENTS + 1
        if total > MAX_LATENTS:
            problem = f"makes the script longer than {MAX_LATENTS} latent frames; give a shorter duration"
            raise ControlScriptError(script, segment, at, duration, problem)
        stretches.append(Stretch(value.rstrip(), int(duration), segment, start))
    if not stretches:
        raise ControlScriptError(script, 0, 0, script, "holds no segment; give at least one, such as w-8")
    return stretches


def parse_actions(script: str) -> list[Command]:
    """Parse an action script such as ``"w-32,sd+left+space-8"``; `format_actions` is the inverse.

    Raises:
        ControlScriptError: naming the token and its place.
    """
    return [_parse_command(script, stretch) for stretch in split_script(script)]


def _parse_command(script: str, stretch: Stretch) -> Command:
    fields: dict[str, int] = {}
    given: dict[str, str] = {}  # kind of control -> the token that set it
    position = stretch.position
    for text in stretch.value.split("+"):
        start, position = position + len(text) - len(text.lstrip()), position + len(text) + 1
        token = text.strip()
        where = script, stretch.segment, start, token
        if token.lower() != IDLE and token.lower() not in CONTROLS:
            raise ControlScriptError(*where, f"is not a control; join any of {' '.join(CONTROLS)} with +, or give none")
        kind, changes = CONTROLS.get(token.lower(), (IDLE, {}))
        if kind in given:
            raise ControlScriptError(*where, f"is a second {kind} after {given[kind]!r}; a segment takes one of a kind")
        given[kind] = token
        if IDLE in given and len(given) > 1:
            raise ControlScriptError(*where, f"is combined with {IDLE!r}, which stands alone; leave one of them out")
        fields.update(changes)
    return Command(stretch.latents, **fields)


def format_actions(commands: Iterable[Command]) -> str:
    """The canonical script of commands: movement, turn, tilt and jump in this order, ``none`` for nothing."""
    return ",".join(f"{'+'.join(_tokens(command)) or IDLE}-{command.latents}" for command in commands)


def _tokens(command: Command) -> list[str]:
    return [
        token
        for token, (_, changes) in CONTROLS.items()
        if all(getattr(command, name) == value for name, value in changes.items())
    ]


def action_rows(
    script: str,
    perspective: int | np.ndarray = FIRST_PERSON,
    yaw: float = DEFAULT_DEGREES,
    pitch: float = DEFAULT_DEGREES,
) -> np.ndarray:
    """The action rows of a script: float32 ``[T, 6]``, see `FrameAction`, with T the sum of its durations.

    Row 0 is always idle and is part of the first command's duration: it belongs to the picture that the rollout
    starts from. ``perspective`` is 0, 1 or one of these per latent (see `perspective_column`); ``yaw`` and ``pitch``
    are the degrees that a turn or tilt makes per latent frame.

    Raises:
        ControlScriptError: for a malformed script.
        ValueError: when ``perspective`` has another length than the script.
    """
    commands = parse_actions(script)
    rows = np.zeros((len(commands), ACTION_DIM), dtype=np.float32)
    for row, command in zip(rows, commands, strict=True):
        row[PITCH], row[YAW] = pitch * command.tilt, yaw * command.turn
        row[LONGITUDINAL], row[LATERAL], row[JUMP] = command.longitudinal, command.lateral, command.jump
    rows = np.repeat(rows, [command.latents for command in commands], axis=0)
    if np.ndim(perspective) and len(perspective) != len(rows):
        raise ValueError(f"there are {len(perspective)} perspectives for {len(rows)} latents; give one for each latent")
    rows[0] = 0
    rows[:, PERSPECTIVE] = perspective
    return rows


def perspective_column(script: str, latents: int) -> np.ndarray:
    """The perspective of each of ``latents`` latents from a view script such as ``"tps-16,fps-16"``: int64 ``[T]``.

    Raises:
        ControlScriptError: for a malformed script, an unknown view, or durations that do not sum to ``latents``.
    """
    stretches = parse_schedule(script, latents, names=VIEWS)
    views = [VIEWS[stretch.value] for stretch in stretches]
    return np.repeat(views, [stretch.latents for stretch in stretches])


def parse_schedule(
    script: str, latents: int, chunk_latents: int = 1, names: Collection[str] | None = None
) -> list[Stretch]:
    """Parse a schedule such as ``"prompt1-32,prompt2-32"`` that covers ``latents`` latents.

    A value may only change between chunks of ``chunk_latents`` latents. With ``names`` given, a value must be one of
    them.

    Raises:
        ControlScriptError: naming the segment and its place.
    """
    stretches = split_script(script)
    total = 0  # latents up to and with the present stretch
    for index, stretch in enumerate(stretches):
        where = script, stretch.segment, stretch.position, stretch.value
        if names is not None and stretch.value not in names:
            raise ControlScriptError(*where, f"is not known here; choose one of {', '.join(sorted(names))}")
        if not stretch.value:
            raise ControlScriptError(*where, "names nothing; put a name or a text before the hyphen")
        total += stretch.latents
        last = index + 1 == len(stretches)
        if (total != latents) if last else (total >= latents):
            problem = (
                f"ends at latent {total}, but the schedule must cover exactly {latents}; "
                "make its durations add up to those of the actions"
            )
            raise ControlScriptError(*where, problem)
        if not last and total % chunk_latents:
            problem = f"ends at latent {total}, inside a chunk; end it at a multiple of the chunk's {chunk_latents}"
            raise ControlScriptError(*where, problem)
    return stretches


def chunk_values(stretches: Iterable[Stretch], chunk_latents: int = 1) -> list[str]:
    """The value in force for each chunk of ``chunk_latents`` latents of a parsed schedule."""
    return [value for s in stretches for value in [s.value] * -(-s.latents // chunk_latents)]
