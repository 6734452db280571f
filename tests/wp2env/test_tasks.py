"""Tasks: what they pay for, when they end an episode, and that their state comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from world_model.controls import StructuredCaption
from wp2env.tasks import (
    Callback,
    Composite,
    Constant,
    Exploration,
    GoalImage,
    RewardOut,
    RewardSource,
    TaskContext,
    make_task,
)

ALL = np.ones(2, dtype=bool)


def context(*colours, step=1):
    """One step of slots that each show one colour from 0 to 255."""
    frames = np.stack([np.full((2, 16, 16, 3), colour, np.uint8) for colour in colours])
    slots = len(colours)
    return TaskContext(
        frames=frames,
        previous=frames[:, 0],
        actions=np.zeros((slots, 1, 6), np.float32),
        captions=(StructuredCaption("a hall"),) * slots,
        steps=np.full(slots, step),
        active=np.ones(slots, bool),
        random=tuple(np.random.default_rng(slot) for slot in range(slots)),
    )


def begun(task, *colours):
    task.reset(np.ones(len(colours), bool), context(*colours, step=0))
    return task


# Exploration.


def test_exploration_pays_the_distance_to_the_nearest_picture_seen():
    task = begun(Exploration(), 0, 100)
    out = task(context(51, 100))
    assert out.reward == pytest.approx([51 / 255, 0]) and out.terms["novelty"] == pytest.approx(out.reward)
    assert task(context(255, 100)).reward[0] == pytest.approx((255 - 51) / 255)
    assert not out.terminated.any()


def test_exploration_pays_a_picture_once():
    task = begun(Exploration(), 0)
    paid = [task(context(colour)).reward[0] for colour in (200, 200, 0, 200)]
    assert paid[0] > 0 and paid[1:] == [0, 0, 0]


def test_exploration_takes_small_changes_for_flicker():
    assert begun(Exploration(threshold=0.03), 100)(context(107)).reward == [0]
    assert begun(Exploration(threshold=0.02), 100)(context(107)).reward[0] > 0


def test_exploration_does_not_let_flicker_add_up_to_a_reward_it_never_shows():
    """Pictures below the threshold are not remembered, so a slow change is paid once it has come far enough."""
    task = begun(Exploration(threshold=0.03), 100)
    paid = [task(context(colour)).reward[0] for colour in (104, 107, 110)]
    assert paid[:2] == [0, 0] and paid[2] == pytest.approx(10 / 255)


def test_exploration_scales_and_forgets_the_oldest_beyond_its_capacity():
    task = begun(Exploration(scale=10, capacity=2), 0)
    assert task(context(255)).reward == pytest.approx([10])
    task(context(128))  # pushes out 0
    assert task(context(0)).reward == pytest.approx([10 * 128 / 255])


def test_a_reset_forgets_only_the_slots_of_its_mask():
    task = begun(Exploration(), 0, 0)
    task(context(200, 200))
    task.reset(np.array([True, False]), context(0, 0, step=0))
    assert (task(context(200, 200)).reward > 0).tolist() == [True, False]


# A goal.


def test_a_goal_pays_progress_and_takes_it_back():
    task = begun(GoalImage(np.full((8, 8, 3), 255, np.uint8), gamma=1), 0)
    assert task(context(51)).reward == pytest.approx([0.2])
    assert task(context(51)).reward == pytest.approx([0])
    assert task(context(0)).reward == pytest.approx([-0.2])


def test_with_a_discount_hovering_near_the_goal_costs():
    task = begun(GoalImage(np.full((8, 8, 3), 255, np.uint8), gamma=0.9), 204)
    assert task(context(204)).reward == pytest.approx([-0.08])


def test_staying_at_the_goal_ends_the_episode_with_a_bonus():
    task = begun(GoalImage(np.full((8, 8, 3), 255, np.uint8), patience=2, bonus=5), 0, 0)
    ends = [task(context(*colours)) for colours in ((255, 255), (255, 0), (255, 255))]
    assert [out.terminated.tolist() for out in ends] == [[False, False], [True, False], [True, False]]
    assert ends[1].terms["success"].tolist() == [5, 0]


def test_the_streak_at_the_goal_begins_anew_after_a_reset():
    task = begun(GoalImage(np.full((8, 8, 3), 255, np.uint8), patience=2), 0)
    task(context(255))
    task.reset(np.ones(1, bool), context(0, step=0))
    assert not task(context(255)).terminated[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"goal": np.zeros((8, 8, 3))}, r"the goal is float64 \[8, 8, 3\]; give an RGB picture"),
        ({"goal": np.zeros((1, 8, 8, 3), np.uint8)}, "give an RGB picture"),
        ({"success": 0}, "success is 0; give a potential above 0"),
        ({"patience": 0}, "patience is 0; it takes at least 1 step"),
    ],
)
def test_a_goal_that_cannot_be_reached_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GoalImage(**{"goal": np.zeros((8, 8, 3), np.uint8), **arguments})


def test_exploration_without_memory_is_refused():
    with pytest.raises(ValueError, match="capacity is 0; remember at least 1 picture"):
        Exploration(capacity=0)


# Functions and constants.


def test_a_function_may_return_rewards_one_number_a_tensor_or_everything():
    assert Callback(lambda c: c.steps * 0.5)(context(0, 0)).reward.tolist() == [0.5, 0.5]
    assert Callback(lambda c: 2)(context(0, 0)).reward.tolist() == [2, 2]
    assert Callback(lambda c: torch.tensor([1.0, 2.0]))(context(0, 0)).reward.tolist() == [1, 2]
    whole = RewardOut(np.ones(2), ALL)
    assert Callback(lambda c: whole)(context(0, 0)) is whole


def test_a_function_with_a_wrong_number_of_rewards_is_named():
    def judge(context):
        return [1, 2, 3]

    with pytest.raises(ValueError, match=r"the reward function judge returned the shape \(3,\); return \(2,\)"):
        Callback(judge)(context(0, 0))


def test_a_function_cannot_change_the_frames_that_others_see(make):
    def vandal(context):
        context.frames[:] = 0

    env = make(task=vandal)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="read-only"):
        env.step(env.idle_action())


def test_a_constant_pays_itself_and_never_ends():
    out = Constant(0.25)(context(0, 0))
    assert out.reward.tolist() == [0.25, 0.25] and not out.terminated.any() and Constant(0.25).name == "constant 0.25"


# Sums.


class Ending:
    name = "ending"

    def __init__(self, confidence):
        self.confidence = confidence

    def reset(self, mask, context):
        pass

    def __call__(self, context):
        return RewardOut(np.ones(2), np.array([False, True]), {"bonus": np.ones(2)}, np.array(self.confidence))

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_sum_weighs_rewards_names_terms_and_ends_when_one_part_ends():
    task = begun(Composite({"new": Exploration(), "end": Ending([0.9, 0.2])}, {"end": 0.5}), 0, 0)
    out = task(context(255, 0))
    assert out.reward == pytest.approx([1.5, 0.5]) and out.terminated.tolist() == [False, True]
    assert set(out.terms) == {"new.novelty", "end.bonus"} and task.name == "1 new + 0.5 end"


def test_the_least_confident_part_speaks_for_all():
    task = Composite({"a": Ending([0.9, 0.2]), "b": Ending([0.5, 0.6]), "c": Constant()})
    assert task(context(0, 0)).confidence.tolist() == [0.5, 0.2]
    assert Composite({"c": Constant()})(context(0, 0)).confidence is None


def test_a_composite_takes_names_and_functions_too():
    task = Composite({"still": "constant", "steps": lambda context: context.steps}, {"steps": 2.0})
    assert task(context(0, 0)).reward.tolist() == (2.0 * context(0, 0).steps).tolist()


def test_weights_for_parts_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"the weights are for \['b'\] and the parts are \['a'\]; name the parts"):
        Composite({"a": Constant()}, {"b": 1})
    with pytest.raises(ValueError, match="name the parts"):
        Composite({})


# State.

TASKS = {
    "exploration": lambda: Exploration(capacity=4),
    "goal": lambda: GoalImage(np.full((8, 8, 3), 255, np.uint8), patience=2),
    "callback": lambda: Callback(lambda context: context.steps),
    "constant": lambda: Constant(1.0),
    "sum": lambda: Composite({"new": Exploration(), "goal": GoalImage(np.full((8, 8, 3), 255, np.uint8))}),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_state_comes_back_any_number_of_times_in_another_object_too(name):
    steps = [context(*colours) for colours in ((50, 255), (100, 255), (255, 0), (255, 255))]
    task = begun(TASKS[name](), 0, 0)
    task(steps[0])
    state = task.state_dict()
    future = [task(step) for step in steps[1:]]
    for again in (task, TASKS[name]()):
        again.load_state_dict(state)
        for step, expected in zip(steps[1:], future, strict=True):
            out = again(step)
            assert np.array_equal(out.reward, expected.reward)
            assert np.array_equal(out.terminated, expected.terminated)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_keeps_the_protocol(name):
    assert isinstance(TASKS[name](), RewardSource)


def test_tasks_by_name_by_function_and_as_they_are():
    goal = TASKS["goal"]()
    assert isinstance(make_task("explore"), Exploration) and isinstance(make_task("constant"), Constant)
    assert make_task("explore") is not make_task("explore")  # a task belongs to one environment
    assert make_task(goal) is goal and make_task(len).name == "len"


# In the environment.


def test_the_context_shows_the_step_as_it_was(make_vec):
    seen = []

    def look(context):
        seen.append(replace(context, frames=context.frames.copy(), previous=context.previous.copy()))
        return 0

    envs = make_vec(2, task=look, action_mode="discrete", max_episode_steps=2)
    first = envs.reset(seed=0)[0]
    second = envs.step(np.array([1, 11]))[0]
    envs.step(np.array([0, 0]))
    envs.step(np.array([0, 0]))
    assert np.array_equal(seen[0].previous, first) and np.array_equal(seen[0].frames[:, -1], second)
    assert np.array_equal(seen[1].previous, second)
    assert [one.steps.tolist() for one in seen] == [[1, 1], [2, 2], [1, 1]]
    assert seen[0].actions[:, 0, [2, 5]].tolist() == [[1, 0], [0, 1]] and tuple(seen[0].latents.shape[:2]) == (2, 1)
    assert seen[0].captions[0].scene.startswith("hall") and seen[0].active.all()


def test_a_slot_that_waits_for_its_reset_is_not_active(make_vec):
    active = []
    envs = make_vec(
        2, task=lambda context: active.append(context.active.tolist()) or 0,
        action_mode="discrete", max_episode_steps=1, autoreset_mode="NEXT_STEP",
    )  # fmt: skip
    envs.reset(seed=0)
    envs.step(np.zeros(2, int)), envs.step(np.zeros(2, int))
    assert active == [[True, True], [False, False]]


def test_the_tasks_generators_follow_the_seed_and_nothing_else(make):
    def dice(context):
        return context.random[0].random()

    rolls = []
    for _ in range(2):
        env = make(task=dice)
        env.reset(seed=3)
        rolls.append([env.step(env.idle_action())[1] for _ in range(3)])
    assert rolls[0] == rolls[1] and len(set(rolls[0])) == 3


def test_the_tasks_generators_are_part_of_the_state(make):
    env = make(task=lambda context: context.random[0].random())
    env.reset(seed=3)
    state = env.get_state()
    roll = env.step(env.idle_action())[1]
    env.set_state(state)
    assert env.step(env.idle_action())[1] == roll


def test_an_episode_ends_where_its_goal_was_seen(make):
    env = make(action_mode="discrete")
    env.reset(seed=0)
    goal = env.step(5)[0]
    env = make(action_mode="discrete", task=GoalImage(goal, patience=1, bonus=7.0))
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(5)
    assert terminated and not truncated and reward > 7
    assert info["reward_source"] == "goal image" and info["reward_terms"]["success"] == 7
