"""The Doom process: one level, one player, one frame per action row."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import vizdoom

from world_model.controls import ACTION_DIM, FIRST_PERSON, JUMP, PERSPECTIVE, THIRD_PERSON
from world_model.data.doom.actors import ARMOUR, CHARACTERS, WEAPONS
from world_model.data.doom.motion import ELEVATION, TICS, TURN_UNIT, TURNING_TICS, Turn, degrees_between, quantise

SETTLE_TICS = 24  # a new map ignores input for 8 tics, and the weapon needs about 20 to come up
FIELD_OF_VIEW = 100  # degrees over the 4:3 picture, about 84 over the square that is kept
CHASE_DISTANCE, CHASE_HEIGHT = 88, 4  # map units behind and above the head
LONGEST_COMMAND = 127  # the console drops longer ones without a word
TURN_NUDGE = 1e-4  # the engine rounds turns down; this keeps whole units whole
RESOLUTIONS = (  # smallest that holds the wanted square
    (120, vizdoom.ScreenResolution.RES_160X120),
    (192, vizdoom.ScreenResolution.RES_256X192),
    (240, vizdoom.ScreenResolution.RES_320X240),
    (480, vizdoom.ScreenResolution.RES_640X480),
)
DEAD = (  # what an engine raises whose process has ended
    vizdoom.ViZDoomErrorException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.ViZDoomUnexpectedExitException,
)
IDLE = [0.0] * ACTION_DIM
NO_TURN = Turn(right=0, up=0)
BUTTONS = (
    vizdoom.Button.MOVE_FORWARD,
    vizdoom.Button.MOVE_BACKWARD,
    vizdoom.Button.MOVE_RIGHT,
    vizdoom.Button.MOVE_LEFT,
    vizdoom.Button.JUMP,
    vizdoom.Button.TURN_LEFT_RIGHT_DELTA,
    vizdoom.Button.LOOK_UP_DOWN_DELTA,
)
VARIABLES = (
    vizdoom.GameVariable.POSITION_X,
    vizdoom.GameVariable.POSITION_Y,
    vizdoom.GameVariable.POSITION_Z,
    vizdoom.GameVariable.ANGLE,
    vizdoom.GameVariable.PITCH,
    vizdoom.GameVariable.ITEMCOUNT,
    vizdoom.GameVariable.ON_GROUND,
)


@dataclass(frozen=True)
class Look:
    """The controlled figure: character name, armour colour (shown by the marine only), weapon word or ""."""

    character: str = "Marine"
    armour: str = "green"
    weapon: str = ""

    def caption(self) -> str:
        """The character caption, for frames in which the figure is seen."""
        words = next(character.words for character in CHARACTERS if character.name == self.character)
        if self.character == "Marine":
            words += f" in {self.armour} armour"
        return f"{words} holding a {self.weapon}" if self.weapon else words


@dataclass(frozen=True)
class Start:
    """Where and how an episode begins: map units, degrees counter-clockwise from east, engine seed."""

    x: float
    y: float
    heading: float
    seed: int


class DoomEngine:
    """A running Doom process that plays maps of one WAD and returns square RGB frames.

    Raises `vizdoom.ViZDoomErrorException` or `vizdoom.ViZDoomUnexpectedExitException` when the process dies;
    a fatal actor error can take the calling process down too, so recorders keep it in a child process.
    """

    def __init__(self, wad: Path | None, first_map: str, size: int = 64, depth: bool = False):
        """``wad`` lies on top of Freedoom Phase 2 (None: Freedoom alone); ``size`` is the frame's side in pixels,
        at most 480; ``depth`` also renders the depth buffer for `depth_map`."""
        if not 8 <= size <= RESOLUTIONS[-1][0]:
            raise ValueError(f"size {size} is outside 8..{RESOLUTIONS[-1][0]} pixels; choose 64 or 128")
        self.size = size
        self._chasing, self._map = False, first_map
        game = self.game = vizdoom.DoomGame()
        if wad is not None:
            game.set_doom_scenario_path(str(wad))
        game.set_doom_game_path(str(Path(vizdoom.__file__).parent / "freedoom2.wad"))
        game.set_doom_map(first_map)
        game.set_doom_config_path(os.devnull)  # settings would leak from one engine to the next through a file
        game.set_screen_resolution(next(resolution for side, resolution in RESOLUTIONS if side >= size))
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_depth_buffer_enabled(depth)
        game.set_available_buttons(list(BUTTONS))
        game.set_available_game_variables(list(VARIABLES))
        game.set_render_hud(False)
        game.set_render_crosshair(False)
        game.set_render_messages(False)
        game.set_render_screen_flashes(True)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_doom_skill(1)
        game.set_episode_start_time(1)
        game.set_episode_timeout(0)
        game.add_game_args(
            f"+movebob 0 +stillbob 0 +chase_dist {CHASE_DISTANCE} +chase_height {CHASE_HEIGHT}"
            f" +cl_showmultikills 0 +cl_showsecretmessage 0 +fov {FIELD_OF_VIEW}"
        )
        game.init()

    def close(self) -> None:
        """End the process."""
        self.game.close()

    def command(self, *commands: str) -> None:
        """Send console commands; they take effect with the next step."""
        for command in commands:
            if not 0 < len(command) <= LONGEST_COMMAND:
                raise ValueError(
                    f"console command of {len(command)} characters ({command!r}); 1 to {LONGEST_COMMAND} are allowed, "
                    "split it into several"
                )
            self.game.send_game_command(command)

    def reset(self, map_name: str, start: Start, look: Look, perspective: int) -> None:
        """Begin an episode at a given place and let it settle; afterwards `frame` and `pose` show the start."""
        self._begin(map_name, start.seed, look, perspective)
        self.command(f"warp {round(start.x)} {round(start.y)}")
        self._tics(1, self._buttons(), render=False)
        angle = self.game.get_game_variable(vizdoom.GameVariable.ANGLE)
        turn = Turn(right=round(degrees_between(angle - start.heading) / TURN_UNIT), up=0)
        self._tics(1, self._buttons(turn=turn), render=True)
        self._read()

    def reset_at_start(self, map_name: str, seed: int, look: Look, perspective: int) -> None:
        """Begin an episode where the map itself puts the player, without monsters."""
        self._begin(map_name, seed, look, perspective)
        self.command("kill monsters")
        self._tics(1, self._buttons(), render=True)
        self._read()

    def _begin(self, map_name: str, seed: int, look: Look, perspective: int) -> None:
        self.command(f"playerclass {look.character}", f'color "{ARMOUR[look.armour]}"')
        if map_name != self._map:  # costs a second load
            self.game.set_doom_map(map_name)
            self._map = map_name
        self.game.set_seed(seed)  # after that load, which would use the seed up
        self.game.new_episode()
        self.command("god2", "notarget", f"r_drawplayersprites {int(bool(look.weapon))}", f"fov {FIELD_OF_VIEW}")
        if look.weapon:
            self.command(f"give {WEAPONS[look.weapon]}", f"use {WEAPONS[look.weapon]}")
        self._show(perspective)
        self._tics(SETTLE_TICS - 2, self._buttons(), render=False)

    def step(self, row: np.ndarray) -> np.ndarray:
        """Play one frame (4 tics) of an action row ``[6]`` and return the row as applied: quantised angles,
        pitch within the limit, no jump while in the air. A perspective change shows in this frame.

        After the end of an episode (only Freedoom's own maps end) nothing moves and `frame` stays the last real one.
        """
        turn, applied = quantise(row, self.pose[ELEVATION])
        if not self._on_ground:
            applied[JUMP] = 0
        self._play(applied, turn, look=True)
        return applied

    def repeat(self, applied: np.ndarray, elevation: float, look: bool) -> None:
        """Play a row that `step` has returned once more, from the camera elevation (degrees) it was played at.

        Without ``look`` the engine renders nothing and tells nothing: frame, pose and items stay what they were.
        """
        turn, _ = quantise(applied, elevation)
        self._play(applied, turn, look)

    def _play(self, applied: np.ndarray, turn: Turn, look: bool) -> None:
        self._show(int(applied[PERSPECTIVE]))
        self._tics(TICS - TURNING_TICS, self._buttons(applied), render=False)
        self._tics(TURNING_TICS, self._buttons(applied, turn), render=look)
        if look:
            self._read()

    @property
    def ended(self) -> bool:
        """Whether the game itself has ended the episode."""
        return self.game.is_episode_finished()

    @property
    def perspective(self) -> int:
        """0 while the camera follows behind, 1 while it looks through the figure's eyes."""
        return THIRD_PERSON if self._chasing else FIRST_PERSON

    def depth_map(self) -> np.ndarray:
        """The depth buffer of the last frame, uint8 ``[H, W]``; larger is farther."""
        return self._depth

    def _show(self, perspective: int) -> None:
        if self.perspective != perspective:
            self._chasing = not self._chasing  # the command toggles and outlives the episode
            self.command("chase")

    @staticmethod
    def _buttons(row: np.ndarray | None = None, turn: Turn = NO_TURN) -> list[float]:
        _, _, forward, right, _, jump = row.tolist() if row is not None else IDLE
        return [
            forward > 0,
            forward < 0,
            right > 0,
            right < 0,
            jump > 0,
            turn.right * TURN_UNIT + TURN_NUDGE if turn.right else 0.0,
            turn.up * TURN_UNIT + TURN_NUDGE if turn.up else 0.0,
        ]

    def _tics(self, tics: int, buttons: list[float], render: bool) -> None:
        self.game.set_action(buttons)
        self.game.advance_action(tics, render)

    def _read(self) -> None:
        """Fetch pose and picture; what the engine no longer gives after an episode's end keeps its last value."""
        if self.game.is_episode_finished():
            return
        x, y, z, angle, pitch, items, on_ground = (self.game.get_game_variable(name) for name in VARIABLES)
        self.pose = np.array([x, y, z, angle, -degrees_between(pitch)], dtype=np.float32)
        self.items, self._on_ground = int(items), bool(on_ground)
        state = self.game.get_state()
        self.frame = self._square(state.screen_buffer)
        self._depth = state.depth_buffer

    def _square(self, picture: np.ndarray) -> np.ndarray:
        height, width = picture.shape[:2]
        left = (width - height) // 2
        square = picture[:, left : left + height]
        if self.size < height < 2 * self.size:  # area averaging over whole pixels is twice as fast and 56 dB the same
            square = cv2.resize(square, (2 * self.size, 2 * self.size), interpolation=cv2.INTER_LINEAR)
        return cv2.resize(square, (self.size, self.size), interpolation=cv2.INTER_AREA)
