"""Tasks by name: the engine's word where there is one, the world's reward heads elsewhere."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from world_model.checkpoint import load_world
from world_model.config import TINY, RewardConfig
from world_model.controls import StructuredCaption
from world_model.data.doom import tasks as engine
from world_model.data.doom.task_names import WALK_TO_BALL
from world_model.reward import REWARD_FILE, RewardHeads, codec_digest, read_heads, save_heads
from wp2env.named_tasks import NAMED_TASKS, NamedTask
from wp2env.tasks import Composite, TaskContext, make_task

SLOTS = 3
CONFIG = RewardConfig(tuple(NAMED_TASKS), TINY.latent_shape, window=2, widths=(4, 8, 2), hidden=8)


class Brightness:
    """In place of heads: the event's probability is the newest latent's mean, the spread the oldest one's."""

    def __init__(self, **changes):
        self.config = replace(CONFIG, **changes)
        self.tasks = self.config.tasks

    def judge(self, latents):
        newest, oldest = (latents[:, place].mean((1, 2, 3))[:, None].expand(-1, len(self.tasks)) for place in (-1, 0))
        return newest, newest * 0 + 1, 10 * newest, oldest


def context(*chunks, truth=None, step=1, seed=0):
    """A step of slots whose chunks of latents have these mean values, such as ``[0.2]`` or ``[0.2, 0.9]``."""
    latents = torch.tensor(chunks, dtype=torch.float32)[..., None, None, None].expand(-1, -1, *TINY.latent_shape)
    slots, frames = len(chunks), np.zeros((len(chunks), 1, 32, 32, 3), np.uint8)
    return TaskContext(
        frames=frames,
        previous=frames[:, 0],
        actions=np.zeros((slots, latents.shape[1], 6), np.float32),
        captions=(StructuredCaption("a hall"),) * slots,
        steps=np.full(slots, step),
        active=np.ones(slots, bool),
        random=tuple(np.random.default_rng([seed, slot]) for slot in range(slots)),
        latents=latents,
        truth=truth,
    )


def begun(task, *values):
    task.reset(np.ones(len(values), bool), context(*([value] for value in values), step=0))
    return task


@pytest.fixture(scope="module")
def rewarded(folder, tmp_path_factory):
    """A tiny world whose folder holds reward heads that disagree."""
    path = tmp_path_factory.mktemp("rewarded") / "tiny"
    shutil.copytree(folder, path)
    heads = RewardHeads(replace(CONFIG, codec=codec_digest(load_world(path).codec)), seed=1)
    for member in heads.members:
        torch.nn.init.normal_(member.out.weight, std=3.0, generator=torch.Generator().manual_seed(2))
    save_heads(heads, path / REWARD_FILE)
    return path


def test_the_names_are_the_engines():
    assert set(NAMED_TASKS) == {task.name for task in engine.TASKS}


def test_in_the_true_game_the_engine_is_believed():
    task = make_task(WALK_TO_BALL)
    truth = {WALK_TO_BALL: (np.array([0.0, 1.0]), np.array([False, True]))}
    task.reset(np.ones(2, bool), context([0.0], [0.0], truth=truth))
    out = task(context([0.0], [0.0], truth=truth))
    assert out.reward.tolist() == [0, 1] and out.terminated.tolist() == [False, True]
    assert out.terms["success"].tolist() == [0, 1] and out.confidence.tolist() == [0, 0] and task.state_dict() == {}


def test_the_true_games_other_tasks_are_not_mistaken_for_it():
    with pytest.raises(ValueError, match="has no task 'walk to the red ball'"):
        make_task(WALK_TO_BALL)(context([0.0], truth={"another": (np.zeros(1), np.zeros(1, bool))}))


def test_success_is_declared_from_the_threshold_on_and_ends_the_episode():
    task = begun(NamedTask(WALK_TO_BALL, heads=Brightness(thresholds=(0.5,) * 3, amounts=(2.0,) * 3)), 0, 0)
    out = task(context([0.4], [0.6]))
    assert out.reward.tolist() == [0, 2] and out.terminated.tolist() == [False, True]
    assert out.terms["success"].tolist() == [0, 1] and out.terms["probability"] == pytest.approx([0.4, 0.6])


def test_expected_rewards_are_paid_without_changing_what_is_declared():
    task = begun(NamedTask(WALK_TO_BALL, expected=True, heads=Brightness()), 0, 0)
    out = task(context([0.4], [0.6]))
    assert out.reward == pytest.approx([4, 6]) and out.terms["success"].tolist() == [0, 1]


def test_the_penalty_takes_the_ensembles_spread_off_every_reward():
    task = begun(NamedTask(WALK_TO_BALL, penalty=2, heads=Brightness()), 0.25, 0)
    out = task(context([0.0], [1.0]))  # the window's oldest latent, which Brightness calls the spread, is the start's
    assert out.confidence == pytest.approx([-0.25, 0]) and out.reward == pytest.approx([-0.5, 1])


def test_sampled_events_come_as_often_as_they_are_likely_and_from_the_slots_own_generator():
    task = begun(NamedTask(WALK_TO_BALL, sample=True, heads=Brightness()), *[0] * 200)
    happened = task(context(*[[0.2]] * 200)).terms["success"]
    assert 20 < happened.sum() < 60
    assert (task(context(*[[0.2]] * 200)).terms["success"] == happened).all()


def test_of_a_chunk_the_most_telling_latent_decides():
    task = begun(NamedTask(WALK_TO_BALL, heads=Brightness()), 0)
    assert task(context([0.1, 0.8, 0.3])).terms["probability"] == pytest.approx([0.8])


def test_a_reset_forgets_the_slot_alone():
    task = begun(NamedTask(WALK_TO_BALL, heads=Brightness()), 0.1, 0.2)
    task.reset(np.array([True, False]), context([0.4], [0.5], step=0))
    assert task(context([0.0], [0.0])).confidence == pytest.approx([-0.4, -0.2])


def test_the_state_comes_back_any_number_of_times():
    task = begun(NamedTask(WALK_TO_BALL, heads=Brightness()), 0.1, 0.2)
    state = task.state_dict()
    for _ in range(2):
        task(context([0.9], [0.9]))
        task.load_state_dict(state)
        assert task(context([0.0], [0.0])).confidence == pytest.approx([-0.1, -0.2])


# In an environment.


def test_a_world_with_heads_takes_the_task_by_its_name(rewarded, make_vec, actions, same):
    env = make_vec(world=str(rewarded), task=WALK_TO_BALL, autoreset_mode="DISABLED")
    env.reset(seed=0)
    state = env.get_state()
    (move,) = actions(env.action_space, 1)
    answer = env.step(move)
    infos = answer[-1]
    assert infos["reward_source"][0] == WALK_TO_BALL and set(infos["reward_terms"]) >= {"success", "probability"}
    assert (-0.5 <= infos["reward_confidence"]).all() and (infos["reward_confidence"] < 0).all()
    for twin in (env, env.clone(), pickle.loads(pickle.dumps(env))):
        twin.set_state(state)
        assert same(answer, twin.step(move))


def test_a_world_without_heads_says_what_to_do(make, make_vec):
    for broken in (lambda: make(task=WALK_TO_BALL), lambda: make_vec(task=Composite({"walk": WALK_TO_BALL}))):
        with pytest.raises(ValueError, match="no learned reward for the task .*wp2 train reward.*'explore'"):
            broken()


def test_heads_for_other_tasks_are_refused(make):
    heads = RewardHeads(RewardConfig(("dance",), TINY.latent_shape))
    with pytest.raises(ValueError, match="know 'dance', not 'walk to the red ball'"):
        make(task=NamedTask(WALK_TO_BALL, heads=heads))


def test_a_task_moves_on_to_the_world_that_it_is_bound_to(rewarded, folder, make):
    task = NamedTask(WALK_TO_BALL)
    make(world=str(rewarded), task=task)
    with pytest.raises(ValueError, match="no learned reward"):
        make(world=str(folder), task=task)


def test_given_heads_must_read_the_worlds_latents(rewarded, folder, make):
    heads = read_heads(rewarded / REWARD_FILE)
    make(task=NamedTask(WALK_TO_BALL, heads=heads))  # the same codec
    with pytest.raises(ValueError, match="another codec"):
        make(task=NamedTask(WALK_TO_BALL, heads=RewardHeads(replace(heads.config, codec="another"))))


def test_an_unbound_task_does_not_guess():
    with pytest.raises(ValueError, match="knows no world"):
        begun(NamedTask(WALK_TO_BALL), 0)(context([0.0]))


def test_an_episode_that_the_task_is_unsure_of_is_truncated_and_says_why(rewarded, make_vec, actions):
    def reasons(**limits):
        env = make_vec(1, world=str(rewarded), task=WALK_TO_BALL, autoreset_mode="DISABLED", **limits)
        env.reset(seed=0)
        answer = env.step(actions(env.action_space, 1)[0])
        return bool(answer[3][0]), answer[-1].get("truncation_reason", [None])[0]

    assert reasons() == (False, None) == reasons(min_confidence=-0.5)
    assert reasons(max_episode_steps=1, min_confidence=-0.5) == (True, "time")
    assert reasons(max_episode_steps=1, min_confidence=0.0) == (True, "confidence")


def test_the_reason_is_in_the_final_info_where_episodes_begin_anew(rewarded, make_vec, actions):
    env = make_vec(1, world=str(rewarded), task=WALK_TO_BALL, min_confidence=0.0)
    env.reset(seed=0)
    infos = env.step(actions(env.action_space, 1)[0])[-1]
    assert infos["final_info"]["truncation_reason"][0] == "confidence" and "truncation_reason" not in infos


def test_a_limit_of_confidence_needs_a_task_that_tells_it(make, actions):
    env = make(task="constant", min_confidence=-0.1)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="does not tell how sure it is"):
        env.step(actions(env.action_space, 1)[0])
    with pytest.raises(ValueError, match="min_confidence is nan"):
        make(min_confidence=float("nan"))
