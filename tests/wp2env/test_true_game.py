"""The true game behind the environment's face: what a generated world shows, and exactly what the game does."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

import wp2env
from world_model.controls import FIRST_PERSON, LONGITUDINAL, NOTHING, PERSPECTIVE, THIRD_PERSON, YAW
from world_model.data.doom.game import DoomGame
from world_model.data.doom.levels import random_level
from world_model.data.doom.task_names import NAMED_GOAL, WALK_TO_BALL
from world_model.data.doom.task_starts import record_task_starts
from wp2env import game_starts
from wp2env.game_starts import bank_of
from wp2env.spaces import ACTION_MODES
from wp2env.starts import StartBank
from wp2env.tasks import RewardOut, TaskContext
from wp2env.true_game import TrueGameEnv, TrueGameVectorEnv

TASK = WALK_TO_BALL
EVENT = "the lights go out"


class Truth:
    """The engine's own word on a task."""

    name = TASK

    def reset(self, mask: np.ndarray, context: TaskContext) -> None:
        assert all(not reward[mask].any() and not end[mask].any() for reward, end in context.truth.values())

    def __call__(self, context: TaskContext) -> RewardOut:
        reward, ended = context.truth[TASK]
        return RewardOut(reward, ended, {"success": reward})

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state: dict) -> None:
        pass


def walk(env, **fields):
    """An action of the mode "dict" that walks ahead."""
    return {**env.idle_action(), "longitudinal": 2, **fields}


# Gymnasium's contract, and the face that it shares with a generated world.


@pytest.mark.parametrize("mode", ["dict", "discrete"])
def test_gymnasiums_checker_finds_nothing_to_say(bank, mode, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make(wp2env.TRUE_GAME_ID, starts=bank, action_mode=mode)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("mode", sorted(ACTION_MODES))
@pytest.mark.parametrize("obs_mode", ["frame", "clip"])
def test_spaces_are_those_of_a_generated_world(make_vec, games, mode, obs_mode):
    worlds, game = make_vec(2, action_mode=mode, obs_mode=obs_mode), games(2, action_mode=mode, obs_mode=obs_mode)
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(game, name) == getattr(worlds, name)
    assert game.metadata == worlds.metadata


def test_infos_are_those_of_a_generated_world(make, game, bank):
    world, true = make(starts=bank, task="explore", info_frames=True), game(task="explore", info_frames=True)

    def shape(info):
        return {key: shape(value) if isinstance(value, dict) else type(value) for key, value in info.items()}

    first = [env.reset(seed=0, options={"start_index": 2})[1] for env in (world, true)]
    later = [env.step(env.idle_action())[4] for env in (world, true)]
    assert shape(first[0]) == shape(first[1]) and shape(later[0]) == shape(later[1])
    assert first[0]["caption"] == first[1]["caption"] and first[1]["start_index"] == 2


def test_make_vec_gives_the_vector_environment_with_the_time_limit(bank):
    env = gymnasium.make_vec(wp2env.TRUE_GAME_ID, 2, starts=bank, max_episode_steps=7)
    assert isinstance(env, TrueGameVectorEnv) and env.max_episode_steps == 7
    env.close()


def test_equal_seeds_draw_the_starts_that_a_generated_world_draws(make_vec, games, bank):
    told = [env.reset(seed=3)[1]["start_index"].tolist() for env in (make_vec(4, starts=bank), games(4))]
    assert told[0] == told[1]


def test_tensors_come_from_the_cpu(games):
    observations, _ = games(output="torch").reset(seed=0)
    assert isinstance(observations, torch.Tensor) and observations.device.type == "cpu"


def test_every_render_mode_shows_the_newest_frame(games):
    env = games(render_mode="rgb_array")
    observations, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), observations)


# Starting places.


def test_a_reset_lands_on_exactly_the_newest_frame_of_the_bank(games, bank):
    observations, infos = games(4).reset(seed=0, options={"start_index": [3, 2, 1, 0]})
    np.testing.assert_array_equal(observations, bank.frames[::-1, -1])
    assert infos["start_index"].tolist() == [3, 2, 1, 0]


def test_the_generated_world_begins_with_the_same_picture_up_to_its_codec(bank_64):
    world = gymnasium.make(wp2env.ENV_ID, starts=bank_64, task="constant")
    true = gymnasium.make(wp2env.TRUE_GAME_ID, starts=bank_64, task="constant")
    for index in range(len(bank_64)):
        shown, exact = (env.reset(seed=0, options={"start_index": index})[0].astype(float) for env in (world, true))
        others = [np.square(shown - bank_64.frames[k, -1]).mean() for k in range(len(bank_64)) if k != index]
        error = np.square(shown - exact).mean()
        assert 10 * math.log10(255**2 / error) > 24 and error < min(others) / 4
    true.close()


@pytest.fixture(scope="module")
def bank_64() -> StartBank:
    return bank_of(list(record_task_starts(TASK, 3, split="test", seed=5)))


def test_a_start_can_be_seen_in_third_person(game):
    env = game()
    first, info = env.reset(seed=0, options={"start_index": 0})
    assert info["caption"]["character"] == NOTHING
    third, info = env.reset(seed=0, options={"start_index": 0, "perspective": THIRD_PERSON})
    assert info["caption"]["character"] != NOTHING and (first != third).any()
    assert env.step(env.idle_action())[4]["caption"] == info["caption"]  # idle keeps the view


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"caption": {"scene": "a beach"}}, "says itself what there is to see"),
        ({"init_frames": np.zeros((9, 9, 3), np.uint8), "caption": {"scene": "a beach"}}, "cannot begin from pictures"),
        ({"text_only": True, "caption": {"scene": "a beach"}}, "cannot begin from pictures or texts"),
        ({"start_index": 4}, "holds 4 starts"),
    ],
)
def test_what_only_a_generated_world_can_do_is_refused_and_the_episode_goes_on(game, same, options, message):
    env, twin = game(), game()
    for one in (env, twin):
        one.reset(seed=1)
    with pytest.raises(ValueError, match=message):
        env.reset(options=options)
    assert same(env.step(walk(env)), twin.step(walk(twin)))
    assert same(env.reset(), twin.reset())


def test_a_bank_of_which_the_game_knows_no_way_is_refused(bank):
    with pytest.raises(ValueError, match="record some with `wp2 starts doom`"):
        TrueGameEnv(starts=replace(bank, origins=None, actions=None))
    with pytest.raises(ValueError, match="32x16; the true game draws squares"):
        TrueGameEnv(starts=replace(bank, frames=bank.frames[:, :, :16]))


def test_without_a_bank_starts_of_the_task_are_recorded_once(monkeypatch):
    monkeypatch.setattr(game_starts, "OWN_STARTS", 2)
    game_starts.own_bank.cache_clear()
    try:
        env = TrueGameEnv(task="explore")
        assert len(env.batch.episodes.bank) == 2
        monkeypatch.setattr(game_starts, "record_task_starts", None)
        assert TrueGameVectorEnv(2).episodes.bank is env.batch.episodes.bank
    finally:
        game_starts.own_bank.cache_clear()


# Steps, rewards and ends.


@pytest.mark.parametrize("task", [Truth(), TASK], ids=["truth", "named"])
def test_whoever_walks_to_the_goal_has_the_reward_and_the_end(game, bank, task):
    env = game(task=task)
    for index, origin in enumerate(bank.origins):
        env.reset(seed=0, options={"start_index": index})
        place = origin["start"]
        heading = place["heading"] - bank.actions[index, :, YAW].sum()
        offs = [
            (math.degrees(math.atan2(ball.y - place["y"], ball.x - place["x"])) - heading + 180) % 360 - 180
            for ball in random_level(origin["level_seed"]).named(NAMED_GOAL)
        ]
        right = -min(offs, key=abs)
        turns = [np.array([0, np.clip(right - k * math.copysign(20, right), -20, 20) / 20], np.float32) for k in (0, 1)]
        said = [env.step({**env.idle_action(), "camera": turns[0]})]
        if abs(right) > 20:
            said.append(env.step({**env.idle_action(), "camera": turns[1]}))
        while not said[-1][2] and len(said) < 26:
            said.append(env.step(walk(env)))
        assert [reward for _, reward, *_ in said] == [0.0] * (len(said) - 1) + [1.0]
        assert [ended for _, _, ended, *_ in said] == [False] * (len(said) - 1) + [True]
        assert said[-1][4]["reward_terms"] == {"success": 1.0} and len(said) > 2


def test_a_slot_shows_what_a_single_game_shows(game, games, actions):
    env, batch = game(action_mode="discrete"), games(3, action_mode="discrete")
    moves = actions(batch.action_space, 6)
    batch.reset(seed=10)
    env.reset(seed=11)
    for move in moves:
        np.testing.assert_array_equal(batch.step(move)[0][1], env.step(move[1])[0])


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_every_autoreset_mode_begins_the_episodes_that_a_generated_world_begins(make_vec, games, bank, mode):
    worlds, true = (make(2, starts=bank, autoreset_mode=mode, max_episode_steps=2) for make in (make_vec, games))
    idle = true.action_space.sample()
    answers = []
    for env in (worlds, true):
        env.reset(seed=4)
        said = [env.step(idle) for _ in range(2)]
        if mode == "DISABLED":
            infos = env.reset(options={"reset_mask": np.array([True, False])})[1]
            answers.append((said[1][3].tolist(), infos["start_index"][0], infos["_start_index"].tolist()))
        else:
            said.append(env.step(idle))
            told = said[1 if mode == "SAME_STEP" else 2][4]
            answers.append(([list(each[3]) for each in said], told["start_index"].tolist(), sorted(said[1][4])))
    assert answers[0] == answers[1]
    if mode == "SAME_STEP":
        assert said[1][4]["final_obs"][0].shape == (32, 32, 3)
        np.testing.assert_array_equal(said[1][0], bank.frames[told["start_index"], -1])


def test_an_episode_ends_with_the_game_itself(game, monkeypatch):
    env = game()
    env.reset(seed=0)
    play = DoomGame.step
    monkeypatch.setattr(DoomGame, "step", lambda self, row: replace(play(self, row), ended=True))
    assert env.step(env.idle_action())[2] is True


# Events.


def test_an_event_of_the_game_happens_and_ends_by_itself(game):
    env, twin = game(), game()
    for one in (env, twin):
        one.reset(seed=0)
    env.set_event(EVENT)
    assert env.caption.event == EVENT and twin.caption.event == NOTHING
    told = [(env.step(env.idle_action()), twin.step(twin.idle_action())) for _ in range(13)]
    assert [shown[4]["caption"]["event"] for shown, _ in told] == [EVENT] * 12 + [NOTHING]
    assert told[-1][0][0].mean() < 0.9 * told[-1][1][0].mean()


def test_events_that_cannot_be_are_refused_in_all_slots_at_once(games):
    env = games(2, action_mode="hybrid")
    env.reset(seed=0)
    action = {**copy.deepcopy(env.action_space.sample()), "event": (EVENT, "a whale sings")}
    before = env.episodes.stream.snapshot()
    with pytest.raises(ValueError, match="'a whale sings' cannot happen here in the true game"):
        env.step(action)
    assert env.episodes.stream.snapshot() == before
    env.set_event(EVENT, slots=0)
    env.set_event(None, slots=0)  # not begun yet, so it can be taken back
    assert env.captions[0].event == NOTHING
    env.step({**action, "event": (EVENT, "")})
    assert [caption.event for caption in env.captions] == [EVENT, NOTHING]
    with pytest.raises(ValueError, match="is still going on"):
        env.set_event("a red alarm light flashes")
    with pytest.raises(ValueError, match="ends by itself"):
        env.set_event(None)


@pytest.mark.parametrize("field", ["scene", "character"])
def test_the_game_itself_says_what_is_there(game, field):
    env = game()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"says itself what the {field} is"):
        env.set_caption(**{field: "a whale"})
    env.set_caption()  # nothing to exchange, as in a generated world


def test_rows_reach_the_engine_as_they_are(game):
    env = game()
    env.reset(seed=0)
    env.step(walk(env, camera=np.array([0, 0.5], np.float32)))
    ((event, row),) = env.get_state().world.episodes[0].moves
    assert event == "" and row[LONGITUDINAL] == 1 and row[YAW] == 10 and row[PERSPECTIVE] == FIRST_PERSON
