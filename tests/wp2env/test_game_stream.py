"""The true game's state is what was done in it: it can be gone back to, copied, and outlives its engines."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from world_model.data.doom.task_starts import record_task_starts
from wp2env.game_starts import bank_of
from wp2env.true_game import TrueGameEnv, TrueGameVectorEnv

TASK, EVENT = "walk to the red ball", "the lights go out"


def engines() -> set[int]:
    """The process ids of this process's engines."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            name, _, rest = status.read_text().partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if name == "vizdoom" and int(parent) == os.getpid() and state != "Z":
                found.add(int(status.parent.name))
    return found


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    """Where temporary files lie."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_state_with_an_event_under_way_can_be_gone_back_to(game, actions, play, same):
    env = game()
    env.reset(seed=0)
    moves = actions(env.action_space, 8)
    play(env, moves[:2])
    env.set_event(EVENT)
    play(env, moves[2:4])
    state = pickle.loads(pickle.dumps(env.get_state()))
    ahead = play(env, moves[4:])
    env.set_state(state)
    assert same(play(env, moves[4:]), ahead)
    twin = game()
    twin.set_state(state)
    assert same(play(twin, moves[4:]), ahead)


def test_an_event_left_to_chance_happens_the_same_way_again(game, play, same):
    env = game()
    env.reset(seed=0, options={"start_index": 0})
    env.set_event("a blue ball appears")
    state = env.get_state()
    idle = [env.idle_action()] * 4
    shown = play(env, idle)
    env.set_state(state)
    assert same(play(env, idle), shown)


def pickled(env):
    return pickle.loads(pickle.dumps(env))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled, TrueGameVectorEnv.clone])
def test_copies_go_on_from_the_same_state(games, actions, play, same, copied):
    env = games(2)
    env.reset(seed=0)
    moves = actions(env.action_space, 4)
    play(env, moves[:2])
    twin = copied(env)
    assert same(play(twin, moves[2:]), play(env, moves[2:]))
    twin.close()


def test_a_state_of_another_bank_is_refused(game, bank):
    env, other = game(), game(starts=bank_of(list(record_task_starts(TASK, 1, split="train", size=32))))
    for one in (env, other):
        one.reset(seed=0)
    with pytest.raises(ValueError, match="made with the same arguments"):
        env.set_state(other.get_state())


# Engines.


def test_a_dead_engine_is_one_sentence_and_the_game_goes_on(games, actions, play, same):
    env, twin = games(2), games(2)
    others = engines()
    env.reset(seed=0)
    mine = sorted(engines() - others)
    twin.reset(seed=0)
    moves = actions(env.action_space, 4)
    play(env, moves[:2]), play(twin, moves[:2])
    os.kill(mine[1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="engine of the true game has died"):
        env.step(moves[2])
    assert same(play(env, moves[2:]), play(twin, moves[2:]))


def test_closing_leaves_no_engine_and_no_file_and_the_next_reset_starts_anew(games, scratch):
    engines_before = engines()
    env = games(2)
    first, _ = env.reset(seed=0)
    assert len(engines() - engines_before) == 2 and list(scratch.iterdir())
    stream = env.episodes.stream  # which would end its engines when dropped, too
    env.close()
    env.close()
    assert engines() <= engines_before and not list(scratch.iterdir())
    assert env.episodes.stream is not stream
    np.testing.assert_array_equal(env.reset(seed=0)[0], first)


def test_dropping_an_environment_ends_its_engine(bank, scratch):
    engines_before = engines()
    env = TrueGameEnv(starts=bank)
    env.reset(seed=0)
    del env
    gc.collect()
    assert engines() <= engines_before and not list(scratch.iterdir())


def test_making_one_starts_no_engine(game):
    before = engines()
    game()
    assert engines() == before
