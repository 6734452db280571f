"""The vector environment told nonsense: one sentence that says what to give, and all slots go on as if nothing was."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from wp2env.tasks import RewardOut

pytestmark = pytest.mark.filterwarnings("error")


def mask(values):
    return lambda envs: envs.reset(options={"reset_mask": values})


BAD_CALLS = {
    "mask of numbers": (mask(np.array([0, 1])), "reset_mask'] is .*; give a boolean array of shape"),
    "mask that is a list": (mask([True, False]), "reset_mask'] is .*; give a boolean array of shape"),
    "mask of another length": (mask(np.ones(3, bool)), r"a boolean array of shape \(2,\) with at least one True"),
    "mask of nobody": (mask(np.zeros(2, bool)), "with at least one True"),
    "too many seeds": (lambda envs: envs.reset(seed=[1, 2, 3]), "there are 3 seeds for 2 slots; give one each"),
    "seeds of nonsense": (lambda envs: envs.reset(seed=[1, "b"]), "a seed is 'b'; give whole numbers from 0 up"),
    "seed as a text": (lambda envs: envs.reset(seed="12"), "a seed is '12'; give whole numbers"),
    "negative seed": (lambda envs: envs.reset(seed=[0, -5]), "a seed is -5"),
    "option list too long": (
        lambda envs: envs.reset(options={"start_index": [0, 1, 2]}),
        r"options\['start_index'\] is a list of 3 values; it takes 2, one per slot",
    ),
    "bad option of one slot": (lambda envs: envs.reset(options={"start_index": [0, 7]}), "start_index is 7"),
    "action of one slot only": (lambda envs: envs.step(np.array([1])), r"the action has the shape \(1,\); give \(2,\)"),
    "action outside": (lambda envs: envs.step(np.array([1, 13])), "the action is 13 in slot 1; give 0 to 12"),
    "slot that is not there": (lambda envs: envs.set_event("x", slots=2), "slot 2 does not exist; .* has 2, numbered"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_one_sentence_and_all_slots_go_on(make_vec, actions, play, same, name):
    call, message = BAD_CALLS[name]
    envs, undisturbed = (make_vec(2, action_mode="discrete") for _ in range(2))
    envs.reset(seed=0), undisturbed.reset(seed=0)
    moves = actions(envs.action_space, 3)
    play(envs, moves[:1]), play(undisturbed, moves[:1])
    with pytest.raises(ValueError, match=message) as raised:
        call(envs)
    assert "\n" not in str(raised.value)
    assert same((play(envs, moves[1:]), envs.reset()), (play(undisturbed, moves[1:]), undisturbed.reset()))


def test_the_first_reset_must_reach_every_slot(make_vec):
    envs = make_vec(2)
    with pytest.raises(ResetNeeded, match="slot 1 was never reset; the first reset must reach every slot"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded, match="the episode has not begun; call reset first"):
        envs.step(envs.action_space.sample())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0; a vector environment has at least 1 slot"),
        ({"autoreset_mode": "LATER"}, "autoreset_mode is 'LATER'; choose one of NEXT_STEP, SAME_STEP, DISABLED"),
        ({"output": "jax"}, "output is 'jax'; choose one of numpy, torch"),
    ],
)
def test_a_bad_argument_is_refused_in_one_sentence(make_vec, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_vec(**arguments)


@pytest.mark.parametrize("answer", [np.ones(3), np.array([1, np.nan])])
def test_a_task_that_answers_nonsense_is_named(make_vec, answer):
    def judge(context):
        return RewardOut(answer, np.zeros(2, bool))

    envs = make_vec(2, task=judge, action_mode="discrete")
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="the task judge gave .* as reward; give 2 finite numbers"):
        envs.step(np.zeros(2, int))
