"""``wp2 play``: walk through a world with the keyboard.

A `Player` turns keys into actions, events and resets; it knows no window. A `Screen` is the window. `main` lets one
look at the other.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from world_model.controls import ACTION_DIM, JUMP, LATERAL, LONGITUDINAL, NOTHING, PERSPECTIVE, PITCH, YAW
from wp2env.cli.arguments import MAX_ZOOM, add_world_arguments, whole
from wp2env.cli.video import GREY, YELLOW, Lines, enlarge, with_lines, wrap
from wp2env.env import WorldPlay2Env
from wp2env.keyboard import ARROW_DOWN, ARROW_LEFT, ARROW_RIGHT, ARROW_UP, SPACE, A, D, S, V, W
from wp2env.spaces import MAX_EVENT
from wp2env.window import open_display

ENTER, KEYPAD_ENTER, ESCAPE, BACKSPACE, R = 0x0D, 0x40000058, 0x1B, 0x08, ord("r")  # SDL's key codes
MAX_YAW, MAX_PITCH = 12.0, 4.0  # degrees per latent frame, as fast as the recorded players turn
CONTROLS = {  # key -> column of the action row, and what it adds there
    W: (LONGITUDINAL, 1),
    S: (LONGITUDINAL, -1),
    D: (LATERAL, 1),
    A: (LATERAL, -1),
    ARROW_RIGHT: (YAW, MAX_YAW),
    ARROW_LEFT: (YAW, -MAX_YAW),
    ARROW_UP: (PITCH, MAX_PITCH),
    ARROW_DOWN: (PITCH, -MAX_PITCH),
    SPACE: (JUMP, 1),
}
HELP = "w a s d walk, arrows look, space jumps, v view, Enter event, r anew, Esc quits"
WHITE = (230, 230, 230)


class Player:
    """One who walks through a world: keys go in, frames and the lines under them come out.

    Args:
        env: the world, with ``action_mode="dict"`` and ``obs_mode="clip"``.
        seed: of the first start.
        scene: text to begin from, None for the world's recorded starts.
    """

    def __init__(self, env: WorldPlay2Env, seed: int | None = None, scene: str | None = None) -> None:
        self.env = env
        self.options: dict[str, Any] = {"text_only": True, "caption": {"scene": scene}} if scene is not None else {}
        self.down: set[int] = set()  # keys that are held
        self.tapped: set[int] = set()  # and those that were, since the last chunk, so that none is too short
        self.line: str | None = None  # the event that is being typed
        self.over = False
        self.restart(seed)

    def restart(self, seed: int | None = None) -> None:
        """Begin somewhere: at the seed's place, or without one at the next."""
        clip, _ = self.env.reset(seed=seed, options=self.options)
        self.frame, self.coming = clip[-1], [clip[-1]]  # the one shown, and those that come next
        self.view = int(self.env.batch.perspectives[0])  # that is wanted; v changes it

    def press(self, key: int) -> None:
        """A key goes down."""
        self.down.add(key)
        if self.line is not None:
            self._press_while_typing(key)
        elif key == ESCAPE:
            self.over = True
        elif key in (ENTER, KEYPAD_ENTER):
            self.line = ""
        elif key == R:
            self.restart()
        elif key == V:
            self.view = 1 - self.view
        else:
            self.tapped.add(key)

    def release(self, key: int) -> None:
        """A key goes up."""
        self.down.discard(key)

    def type(self, text: str) -> None:
        """Letters arrive; they are of interest only while an event is typed."""
        if self.line is not None:
            self.line = (self.line + text)[:MAX_EVENT]

    def row(self) -> np.ndarray:
        """What the keys ask for now, as an action row ``[6]``; opposite keys cancel out."""
        row = np.zeros(ACTION_DIM, dtype=np.float32)
        row[PERSPECTIVE] = self.view
        for key in (self.down | self.tapped) & CONTROLS.keys():
            column, value = CONTROLS[key]
            row[column] += value
        return row

    def next_frame(self) -> np.ndarray:
        """The frame to show now, uint8 ``[H, W, 3]``; while an event is typed the world stands still."""
        if self.line is not None:
            return self.frame
        if not self.coming:
            action = self.env.batch.actions.action(self.row(), self.view)
            self.tapped.clear()
            self.coming = list(self.env.step(action)[0])
        self.frame = self.coming.pop(0)
        return self.frame

    def lines(self, fps: float) -> Lines:
        """What to write under the frame: the caption in force, the event that is being typed, the pace and the keys."""
        caption = self.env.caption
        lines = [(caption.scene, GREY)]
        if caption.character != NOTHING:
            lines.append((caption.character, GREY))
        if self.line is not None:
            lines += [
                (f"event: {self.line}_", WHITE),
                ("Enter announces it, empty ends the last one, Esc cancels", GREY),
            ]
        else:
            lines += [("" if caption.event == NOTHING else caption.event, YELLOW), (f"{fps:.1f} fps   {HELP}", GREY)]
        return lines

    def _press_while_typing(self, key: int) -> None:
        if key == BACKSPACE:
            self.line = self.line[:-1]
        if key in (ENTER, KEYPAD_ENTER):
            self.env.set_event(self.line.strip() or None)
        if key in (ENTER, KEYPAD_ENTER, ESCAPE):
            self.line = None


class Screen:
    """A pygame window that shows frames at a pace and passes the keys on to a player.

    Raises:
        RuntimeError: when there is nowhere to open a window.
    """

    def __init__(self, title: str) -> None:
        self.pygame = pygame = open_display(
            "play needs a display, and on a machine without one `wp2 demo` writes a video"
        )
        pygame.display.set_caption(title)
        self.clock, self.height = pygame.time.Clock(), 0
        self.window: Any = None

    def play(self, player: Player, rate: float, zoom: int) -> None:
        """Show a player's world, ``rate`` frames a second, until the player quits or the window is closed."""
        while not player.over:
            self.listen(player)
            self.draw(enlarge(player.next_frame(), zoom), player.lines(self.clock.get_fps()))
            self.clock.tick(rate)

    def listen(self, player: Player) -> None:
        """Pass on what has happened on the keyboard."""
        pygame = self.pygame
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                player.over = True
            elif event.type == pygame.KEYDOWN:
                player.press(event.key)
            elif event.type == pygame.KEYUP:
                player.release(event.key)
            elif event.type == pygame.TEXTINPUT:
                player.type(event.text)

    def draw(self, picture: np.ndarray, lines: Lines) -> None:
        """Show a picture with its lines; the window opens with the first one and grows when the lines need it."""
        texts = wrap(lines, picture.shape[1])
        self.height = max(self.height, len(texts))
        shown = with_lines(picture, texts, self.height).swapaxes(0, 1)
        if self.window is None or self.window.get_size() != shown.shape[:2]:
            self.window = self.pygame.display.set_mode(shown.shape[:2])
        self.pygame.surfarray.blit_array(self.window, shown)
        self.pygame.display.flip()

    def close(self) -> None:
        """Close the window."""
        self.pygame.display.quit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 play``."""
    add_world_arguments(parser)
    parser.add_argument("--zoom", type=whole(1, MAX_ZOOM), default=8, help="size of a pixel (default: %(default)s)")


def main(settings: argparse.Namespace) -> None:
    """Open the window and play until it is closed."""
    screen = Screen("WorldPlay2")
    try:
        env = WorldPlay2Env(
            settings.world,
            task="constant",
            obs_mode="clip",
            device=settings.device,
            sampling_steps=settings.steps,
            max_yaw=MAX_YAW,
            max_pitch=MAX_PITCH,
        )
        if env.batch.episodes.bank is None and not settings.scene:
            raise ValueError(f"the world {settings.world!r} brings no recorded starts; describe one with --scene")
        player = Player(env, settings.seed, settings.scene)
        rate = env.batch.episodes.handle.get().config.video.frame_rate
        screen.play(player, rate, settings.zoom)
    finally:
        screen.close()
