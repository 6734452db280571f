"""Playing: keys become actions, events and resets without a window; a window passes the keys on."""

from __future__ import annotations

import time

import numpy as np
import pytest

from world_model.controls import FIRST_PERSON, THIRD_PERSON, FrameAction
from wp2env.cli.play import ESCAPE, KEYPAD_ENTER, MAX_PITCH, MAX_YAW, Player, Screen
from wp2env.cli.video import YELLOW
from wp2env.keyboard import ARROW_DOWN, ARROW_LEFT, ARROW_RIGHT, ARROW_UP

pygame = pytest.importorskip("pygame")
W, A, S, D, V, R = map(ord, "wasdvr")
SPACE, ENTER, BACKSPACE = pygame.K_SPACE, pygame.K_RETURN, pygame.K_BACKSPACE


@pytest.fixture
def env(make):
    """Remembers the actions that were taken."""
    env = make(obs_mode="clip", task="constant", sampling_steps=1, max_yaw=MAX_YAW, max_pitch=MAX_PITCH)
    env.taken, step = [], env.step

    def remembered(action):
        rows, _ = env.batch.actions.read({name: np.asarray(value)[None] for name, value in action.items()}, [0])
        env.taken.append(FrameAction.from_row(rows[0, 0]))
        return step(action)

    env.step = remembered
    return env


@pytest.fixture
def player(env):
    """In first person, its start already seen."""
    player = Player(env, seed=0)
    while player.view != FIRST_PERSON:
        player.restart()
    player.next_frame()
    return player


def tap(player, *keys):
    for key in keys:
        player.press(key)
        player.release(key)


@pytest.mark.parametrize(
    ("keys", "action"),
    [
        ([], FrameAction()),
        ([W], FrameAction(longitudinal=1)),
        ([S, D], FrameAction(longitudinal=-1, lateral=1)),
        ([A, SPACE], FrameAction(lateral=-1, jump=1)),
        ([ARROW_RIGHT, ARROW_UP, W], FrameAction(pitch=MAX_PITCH, yaw=MAX_YAW, longitudinal=1)),
        ([ARROW_LEFT, ARROW_DOWN], FrameAction(pitch=-MAX_PITCH, yaw=-MAX_YAW)),
        ([W, S, A, D, ARROW_LEFT, ARROW_RIGHT], FrameAction()),
        ([ord("x"), pygame.K_F1], FrameAction()),
    ],
)
def test_held_keys_are_one_action(player, keys, action):
    for key in keys:
        player.press(key)
    player.next_frame()
    player.next_frame()
    assert player.env.taken == [action, action]
    for key in keys:
        player.release(key)
    player.next_frame()
    assert player.env.taken[-1] == FrameAction()


def test_a_key_that_was_held_too_briefly_counts_once(player):
    tap(player, W)
    player.next_frame()
    player.next_frame()
    assert [action.longitudinal for action in player.env.taken] == [1, 0]


def test_v_changes_the_view_until_it_is_pressed_again(player):
    tap(player, V)
    for _ in range(2):
        player.next_frame()
    tap(player, V)
    player.next_frame()
    assert [action.perspective for action in player.env.taken] == [THIRD_PERSON, THIRD_PERSON, FIRST_PERSON]


def test_an_event_is_typed_and_announced_while_the_world_stands_still(player):
    still = player.next_frame()
    player.type("ignored")
    tap(player, ENTER)
    player.type("grey fog")
    tap(player, W, V, R)
    np.testing.assert_array_equal(player.next_frame(), still)
    assert len(player.env.taken) == 1 and player.view == FIRST_PERSON and player.env.caption.event == "None"
    assert any("grey fog" in text for text, _ in player.lines(0))
    tap(player, BACKSPACE)
    player.type("g rolls in ")
    tap(player, ENTER)
    assert player.line is None and player.env.caption.event == "grey fog rolls in"
    assert ("grey fog rolls in", YELLOW) in player.lines(0)
    player.next_frame()
    assert player.env.taken[-1] == FrameAction()  # letters that were typed do not walk


def test_an_empty_line_ends_the_event_and_escape_keeps_it(player):
    tap(player, KEYPAD_ENTER)
    player.type("rain")
    tap(player, KEYPAD_ENTER, ENTER)
    player.type("snow")
    tap(player, ESCAPE)
    assert player.env.caption.event == "rain" and not player.over
    tap(player, ENTER, BACKSPACE)
    player.type("  ")
    tap(player, ENTER)
    assert player.env.caption.event == "None"


def test_a_typed_line_has_an_end_and_takes_any_letter(player):
    tap(player, ENTER)
    player.type("ünë" * 200)
    assert len(player.line) == 192
    tap(player, ENTER)
    player.next_frame()
    assert player.env.caption.event.startswith("ünë")


def test_r_begins_anew_and_shows_the_start(player):
    player.press(W)
    player.next_frame()
    tap(player, V, R)
    slots = player.env.batch.episodes.slots
    assert slots.steps[0] == 0 and player.view == slots.views[0]
    np.testing.assert_array_equal(player.next_frame(), slots.frames[0])
    player.next_frame()
    assert player.env.taken[-1].longitudinal == 1 and slots.steps[0] == 1


def test_escape_quits(player):
    tap(player, ESCAPE)
    assert player.over


def test_every_frame_of_a_chunk_is_shown_once(make, chunked_folder):
    env = make(world=str(chunked_folder), obs_mode="clip", sampling_steps=1)
    player = Player(env, seed=0)
    player.next_frame()
    shown = np.stack([player.next_frame() for _ in range(16)])
    assert env.batch.episodes.slots.steps[0] == 1
    np.testing.assert_array_equal(shown, env.batch.episodes.slots.clips[0])


def test_the_lines_tell_the_caption_the_pace_and_the_keys(player):
    player.env.set_caption(character="a marine")
    lines = [text for text, _ in player.lines(8.75)]
    assert lines[0].startswith("hall") and lines[1] == "a marine"
    assert lines[-1].startswith("8.8 fps") and "Enter" in lines[-1]


# With a window, which SDL's dummy driver draws nowhere.


@pytest.fixture
def keyboard(monkeypatch):
    """Presses keys and types texts before the frames given: ``{frame: ["text", key, ...]}``; keeps what was drawn."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    drawn = []

    def posting(events):
        listen, draw = Screen.listen, Screen.draw

        def posted(self, player):
            for event in events.get(len(drawn), []):
                if isinstance(event, str):
                    pygame.event.post(pygame.event.Event(pygame.TEXTINPUT, text=event))
                elif event == pygame.QUIT:
                    pygame.event.post(pygame.event.Event(pygame.QUIT))
                else:
                    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=event))
                    pygame.event.post(pygame.event.Event(pygame.KEYUP, key=event))
            assert len(drawn) < 100, "nobody quits"
            listen(self, player)

        def kept(self, picture, lines):
            draw(self, picture, lines)
            size = self.window.get_size()
            drawn.append((size, pygame.surfarray.array3d(self.window).swapaxes(0, 1), lines, time.monotonic()))

        monkeypatch.setattr(Screen, "listen", posted)
        monkeypatch.setattr(Screen, "draw", kept)
        return drawn

    return posting


def test_the_command_plays_until_escape(wp2, folder, keyboard):
    drawn = keyboard({2: [W, V], 4: [ENTER, "grey fog"], 5: [ENTER], 7: [R], 9: [ESCAPE]})
    answer = wp2("play", "--world", folder, "--zoom", "5", "--steps", "1")
    assert answer.code == 0 and not answer.err
    texts = [" ".join(text for text, _ in lines) for _, _, lines, _ in drawn]
    assert "event: grey fog_" in texts[4] and "grey fog" in texts[5] and "grey fog" not in texts[7]
    assert "marine" in texts[2] + texts[1] and "fps" in texts[2]
    (width, height), picture, _, _ = drawn[2]
    assert width == 5 * 32 and height > 5 * 32
    assert picture[: 5 * 32].any() and picture[5 * 32 :].any()
    np.testing.assert_array_equal(drawn[4][1][: 5 * 32], drawn[3][1][: 5 * 32])  # the world waits for the typed line
    assert [size[1] for size, *_ in drawn] == sorted(size[1] for size, *_ in drawn)
    assert not pygame.display.get_init()


def test_it_is_not_faster_than_the_world(wp2, folder, keyboard):
    drawn = keyboard({8: [pygame.QUIT]})
    assert wp2("play", "--world", folder, "--steps", "1").code == 0
    seconds = drawn[7][-1] - drawn[1][-1]
    assert seconds > 0.5 * 6 / 8.75  # without a clock it would take none


def test_a_world_without_starts_begins_from_text(wp2, bankless_folder, keyboard):
    drawn = keyboard({2: [R], 3: [ESCAPE]})
    assert "--scene" in wp2("play", "--world", bankless_folder, "--steps", "1").error
    assert wp2("play", "--world", bankless_folder, "--steps", "1", "--scene", "a hall").code == 0
    assert all(lines[0][0] == "a hall" for _, _, lines, _ in drawn)
    assert not pygame.display.get_init()


def test_a_missing_world_is_one_sentence(wp2, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert "'nowhere'" in wp2("play", "--world", "nowhere").error
    assert not pygame.display.get_init()


def test_without_a_display_the_demo_is_recommended(wp2, monkeypatch):
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
    assert "wp2 demo" in wp2("play", "--world", "nowhere").error
    monkeypatch.setenv("SDL_VIDEODRIVER", "nonsense")
    error = wp2("play", "--world", "nowhere").error
    assert "nonsense" in error and "wp2 demo" in error
