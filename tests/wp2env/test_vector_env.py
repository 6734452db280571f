"""The vector environment: slots against single environments, autoreset, partial resets, Gymnasium's wrappers."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NormalizeReward, RecordEpisodeStatistics

import wp2env
from wp2env.infos import slot_info
from wp2env.tasks import Constant, RewardOut

pytestmark = pytest.mark.filterwarnings("error")


def registered(folder, num_envs=2, **arguments):
    return gymnasium.make_vec(wp2env.ENV_ID, num_envs=num_envs, world=str(folder), **arguments)


def close_enough(a, b) -> bool:
    """Equal up to rounding: matrix products of other batch sizes may move a colour to the next of 256."""
    return bool((np.abs(a.astype(int) - b.astype(int)) <= 1).all())


class Ends:
    """A task that ends the given slot's episode after as many steps as told, and pays one per step."""

    name = "ends"

    def __init__(self, **after: int) -> None:
        self.after = {int(slot[1:]): steps for slot, steps in after.items()}

    def reset(self, mask, context):
        pass

    def __call__(self, context):
        ended = [steps >= self.after.get(slot, np.inf) for slot, steps in enumerate(context.steps)]
        return RewardOut(np.ones(len(ended)), np.array(ended))

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


# Gymnasium's contract.


def test_make_vec_gives_one_network_with_many_slots_and_gymnasiums_step_limit(folder):
    envs = registered(folder, num_envs=3)
    assert type(envs).__name__ == "WorldPlay2VectorEnv" and envs.num_envs == 3
    assert envs.max_episode_steps == 256 and envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observations, infos = envs.reset(seed=0)
    assert observations in envs.observation_space and observations.shape == (3, 32, 32, 3)
    assert infos["caption"]["scene"].shape == (3,) and infos["_caption"].all()


@pytest.mark.parametrize("mode", ["dict", "multidiscrete", "discrete", "box", "hybrid"])
def test_samples_of_the_action_space_are_taken(folder, mode):
    envs = registered(folder, action_mode=mode)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    observations, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
    assert observations in envs.observation_space and rewards.dtype == np.float64
    assert terminated.dtype == truncated.dtype == bool and terminated.shape == (2,)


def test_gymnasiums_own_vectorisation_of_single_environments_works_too(folder):
    envs = registered(folder, vectorization_mode="sync", action_mode="discrete")
    envs.reset(seed=0)
    assert envs.step(np.array([1, 2]))[0] in envs.observation_space


def test_environments_in_other_processes_show_what_one_batch_shows(folder):
    """Workers are spawned: they load the world for themselves and share nothing with this process."""
    workers = registered(folder, vectorization_mode="async", action_mode="discrete", vector_kwargs={"context": "spawn"})
    batch = registered(folder, action_mode="discrete")
    try:
        assert close_enough(workers.reset(seed=4)[0], batch.reset(seed=4)[0])
        assert close_enough(workers.step(np.array([1, 5]))[0], batch.step(np.array([1, 5]))[0])
    finally:
        workers.close()


# Slots and seeds.


def test_a_single_environment_is_a_slot_of_the_batch(make, make_vec, actions):
    envs = make_vec(3, action_mode="box")
    singles = [make(action_mode="box") for _ in range(3)]
    observations, infos = envs.reset(seed=10)
    for slot, env in enumerate(singles):
        observation, info = env.reset(seed=10 + slot)
        assert close_enough(observation, observations[slot]) and info == slot_info(infos, slot)
    for move in actions(envs.action_space, 3):
        observations, rewards, _, _, infos = envs.step(move)
        for slot, env in enumerate(singles):
            observation, reward, _, _, info = env.step(move[slot])
            assert close_enough(observation, observations[slot])
            assert reward == pytest.approx(rewards[slot], abs=1e-4)
            assert (
                info["step"] == slot_info(infos, slot)["step"] and info["caption"] == slot_info(infos, slot)["caption"]
            )


def test_a_batch_of_one_is_the_single_environment_to_the_last_bit(make, make_vec, actions):
    env, envs = make(action_mode="box"), make_vec(1, action_mode="box")
    assert np.array_equal(env.reset(seed=5)[0], envs.reset(seed=5)[0][0])
    for move in actions(env.action_space, 5):
        observation, reward, *_ = env.step(move)
        observations, rewards, *_ = envs.step(move[None])
        assert np.array_equal(observation, observations[0]) and reward == rewards[0]


def test_a_slot_does_not_depend_on_what_the_others_do(make_vec, actions):
    calm, busy = make_vec(2, action_mode="discrete"), make_vec(2, action_mode="discrete")
    calm.reset(seed=[1, 2]), busy.reset(seed=[1, 99])
    for step, move in enumerate(actions(calm.action_space, 4)):
        if step == 2:
            busy.reset(options={"reset_mask": np.array([False, True])})
        there = busy.step(np.array([move[0], 12 - move[1]]))
        assert np.array_equal(calm.step(move)[0][0], there[0][0])


def test_seed_s_gives_slot_i_the_seed_s_plus_i(make_vec, same):
    envs, listed = make_vec(3), make_vec(3)
    assert same(envs.reset(seed=7), listed.reset(seed=[7, 8, 9]))
    assert envs.np_random_seed == (7, 8, 9)


def test_none_among_the_seeds_keeps_that_slots_stream(make_vec):
    envs, twin = make_vec(2), make_vec(2)
    envs.reset(seed=0), twin.reset(seed=0)
    kept, reseeded = envs.reset(seed=[None, 5])[0], twin.reset()[0]
    assert np.array_equal(kept[0], reseeded[0]) and envs.np_random_seed == (0, 5)


def test_equal_seeds_give_equal_episodes_through_autoresets_too(make_vec, actions, play, same):
    envs, twin = (make_vec(2, max_episode_steps=2) for _ in range(2))
    moves = actions(envs.action_space, 7)
    assert same((envs.reset(seed=3), play(envs, moves)), (twin.reset(seed=3), play(twin, moves)))


# Autoreset.


def test_same_step_returns_the_new_episode_and_keeps_the_last_frame_in_the_infos(make_vec, make):
    envs = make_vec(2, task=Ends(_1=2), info_frames=True, action_mode="discrete")
    single = make(task=Ends(), action_mode="discrete")
    envs.reset(seed=0), single.reset(seed=1)
    infos = envs.step(np.array([0, 1]))[4]
    assert "final_obs" not in infos
    observations, rewards, terminated, _, infos = envs.step(np.array([0, 5]))
    single.step(1)
    last = single.step(5)[0]

    assert terminated.tolist() == [False, True] and rewards.tolist() == [1, 1]
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [False, True]
    assert infos["final_obs"][0] is None and close_enough(infos["final_obs"][1], last)
    ended = slot_info(infos["final_info"], 1)
    assert ended["step"] == 2 and np.array_equal(ended["frames"][-1], infos["final_obs"][1])
    begun = slot_info(infos, 1)
    assert begun["step"] == 0 and begun["start_index"] in (0, 1, 2) and "start_index" not in slot_info(infos, 0)
    assert np.array_equal(begun["frames"][-1], observations[1])


def test_next_step_shows_the_last_frame_first_and_then_ignores_one_action(make_vec, actions):
    envs = make_vec(2, autoreset_mode="NEXT_STEP", task=Ends(_1=2), action_mode="discrete")
    envs.reset(seed=0)
    history = [envs.step(move) for move in actions(envs.action_space, 5)]
    assert [answer[2][1] for answer in history] == [False, True, False, False, True]
    assert [answer[1][1] for answer in history] == [1, 1, 0, 1, 1]
    assert [answer[4]["step"][1] for answer in history] == [1, 2, 0, 1, 2]
    assert [answer[1][0] for answer in history] == [1] * 5  # the neighbour is not disturbed
    assert history[2][4]["_start_index"].tolist() == [False, True]
    assert all("final_obs" not in answer[4] for answer in history)


def test_the_new_episode_is_the_same_in_all_three_modes(make_vec):
    begun = {}
    for mode in AutoresetMode:
        envs = make_vec(1, autoreset_mode=mode, task=Ends(_0=1), action_mode="discrete")
        envs.reset(seed=0)
        observations = envs.step(np.array([1]))[0]
        if mode is AutoresetMode.NEXT_STEP:
            observations = envs.step(np.array([5]))[0]
        elif mode is AutoresetMode.DISABLED:
            observations = envs.reset(options={"reset_mask": np.array([True])})[0]
        begun[mode] = observations
    assert len({frames.tobytes() for frames in begun.values()}) == 1


def test_disabled_waits_for_a_partial_reset_that_leaves_the_others_alone(make_vec, actions):
    envs = make_vec(3, autoreset_mode=AutoresetMode.DISABLED, task=Ends(_1=2), action_mode="discrete")
    undisturbed = make_vec(3, autoreset_mode=AutoresetMode.DISABLED, task=Ends(), action_mode="discrete")
    envs.reset(seed=0), undisturbed.reset(seed=0)
    moves = actions(envs.action_space, 4)
    for move in moves[:2]:
        envs.step(move), undisturbed.step(move)
    with pytest.raises(ResetNeeded, match=r"episodes of slots \[1\] have ended; reset them first"):
        envs.step(moves[2])
    options = {"reset_mask": np.array([False, True, False])}
    observations, infos = envs.reset(options=options)
    assert infos["_caption"].tolist() == [False, True, False] and infos["step"].tolist() == [0, 0, 0]
    assert "reset_mask" in options  # wrappers read it after us
    for move in moves[2:]:
        answer, expected = envs.step(move), undisturbed.step(move)
        assert np.array_equal(answer[0][[0, 2]], expected[0][[0, 2]])
    assert answer[4]["step"].tolist() == [4, 2, 4]


def test_the_step_limit_truncates_slot_by_slot_and_never_terminates(make_vec):
    envs = make_vec(2, max_episode_steps=3, action_mode="discrete", autoreset_mode="DISABLED")
    envs.reset(seed=0)
    envs.step(np.zeros(2, int))
    envs.reset(options={"reset_mask": np.array([True, False])})
    ends = [envs.step(np.zeros(2, int))[2:4] for _ in range(2)]
    assert [end[1].tolist() for end in ends] == [[False, False], [False, True]] and not ends[1][0].any()


def test_minus_1_is_no_limit(make_vec):
    assert make_vec(max_episode_steps=-1).max_episode_steps is None


def test_a_world_without_a_bank_repeats_the_start_with_another_seed(make_vec, bankless_folder):
    envs = make_vec(1, world=str(bankless_folder), task=Ends(_0=1), action_mode="discrete")
    picture = np.full((32, 32, 3), 90, np.uint8)
    first = envs.reset(seed=0, options={"init_frames": picture, "caption": {"scene": "a hall"}})[0]
    again, *_, infos = envs.step(np.zeros(1, int))
    assert np.array_equal(first, again) and infos["caption"]["scene"].tolist() == ["a hall"]
    assert not np.array_equal(infos["final_obs"][0], envs.step(np.zeros(1, int))[4]["final_obs"][0])


def test_after_an_autoreset_the_bank_decides_and_the_users_caption_is_gone(make_vec):
    envs = make_vec(1, task=Ends(_0=1), action_mode="discrete")
    envs.reset(seed=0, options={"caption": {"scene": "a beach"}})
    infos = envs.step(np.zeros(1, int))[4]
    assert infos["final_info"]["caption"]["scene"][0] == "a beach"
    assert infos["caption"]["scene"][0].startswith("hall")


@pytest.mark.parametrize("mode", ["SAME_STEP", "SameStep", AutoresetMode.SAME_STEP])
def test_the_autoreset_mode_has_a_name_so_that_specs_can_hold_it(make_vec, mode):
    assert make_vec(autoreset_mode=mode).metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


# Gymnasium's vector wrappers.


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_episode_statistics_count_every_step_once(folder, mode):
    envs = registered(folder, task=Constant(0.5), max_episode_steps=3, action_mode="discrete", autoreset_mode=mode)
    envs = RecordEpisodeStatistics(envs)
    envs.reset(seed=0)
    ended = [
        answer[4]["episode"] for answer in (envs.step(np.zeros(2, int)) for _ in range(8)) if "episode" in answer[4]
    ]
    assert len(ended) == 2
    for episode in ended:
        assert episode["l"].tolist() == [3, 3] and episode["r"].tolist() == [1.5, 1.5]


def test_episode_statistics_follow_a_partial_reset(folder):
    envs = RecordEpisodeStatistics(
        registered(folder, task=Constant(0.5), max_episode_steps=3, action_mode="discrete", autoreset_mode="DISABLED")
    )
    envs.reset(seed=0)
    envs.step(np.zeros(2, int))
    envs.reset(options={"reset_mask": np.array([True, False])})
    envs.step(np.zeros(2, int))
    episode = envs.step(np.zeros(2, int))[4]["episode"]
    assert episode["l"].tolist() == [0, 3]


def test_reward_normalisation_of_gymnasium_takes_the_same_step_mode(folder):
    envs = NormalizeReward(registered(folder, action_mode="discrete"))
    envs.reset(seed=0)
    assert np.isfinite(envs.step(np.zeros(2, int))[1]).all()


# Options and captions per slot.


def test_a_list_as_an_option_gives_one_value_per_slot_and_anything_else_holds_for_all(make_vec):
    envs = make_vec(3)
    captions = [{"event": "it rains"}, None, {"scene": "a beach"}]
    _, infos = envs.reset(seed=0, options={"start_index": [2, 1, 0], "perspective": 0, "caption": captions})
    assert infos["start_index"].tolist() == [2, 1, 0]
    assert infos["caption"]["event"].tolist() == ["it rains", "None", "None"]
    assert infos["caption"]["scene"].tolist() == ["hall 2", "hall 1", "a beach"]
    assert infos["caption"]["character"].tolist() == ["marine 2", "marine 1", "marine 0"]


def test_slots_begin_from_text_pictures_and_the_bank_side_by_side(make_vec):
    envs = make_vec(3)
    options = {
        "text_only": [True, False, None],
        "init_frames": [None, np.zeros((32, 32, 3), np.uint8), None],
        "caption": [{"scene": "a sea"}, {"scene": "a night"}, None],
    }
    infos = envs.reset(seed=0, options=options)[1]
    assert infos["start_index"][:2].tolist() == [-1, -1] and infos["start_index"][2] >= 0


def test_events_are_announced_to_the_slots_named(make_vec):
    envs = make_vec(3)
    envs.reset(seed=0)
    envs.set_event("it rains", slots=np.array([True, False, True]))
    envs.set_caption(scene="a beach", slots=1)
    infos = envs.step({name: np.stack([value] * 3) for name, value in envs.idle_action().items()})[4]
    assert infos["caption"]["event"].tolist() == ["it rains", "None", "it rains"]
    assert infos["caption"]["scene"][1] == "a beach" and envs.captions[1].scene == "a beach"


def test_hybrid_actions_bring_one_event_per_slot(make_vec):
    envs = make_vec(2, action_mode="hybrid")
    envs.reset(seed=0)
    batch = {name: np.stack([value] * 2) for name, value in envs.idle_action().items() if name != "event"}
    infos = envs.step({**batch, "event": ("it rains", "")})[4]
    assert infos["caption"]["event"].tolist() == ["it rains", "None"]


def test_views_are_told_per_slot(make_vec):
    envs = make_vec(2)
    envs.reset(seed=0, options={"perspective": [0, 1]})
    assert envs.perspectives.tolist() == [0, 1]
    assert [int(envs.idle_action(slot)["perspective"]) for slot in (0, 1)] == [0, 1]


# States, output, rendering.


def test_a_state_holds_all_slots_and_comes_back_to_the_last_bit(make_vec, actions, play, same):
    envs = make_vec(2, max_episode_steps=3)
    envs.reset(seed=0)
    moves = actions(envs.action_space, 8)
    play(envs, moves[:2])
    state, twin, packed = envs.get_state(), envs.clone(), pickle.dumps(envs)
    future = play(envs, moves[2:])
    envs.set_state(state)
    assert same(future, play(envs, moves[2:])) and same(future, play(twin, moves[2:]))
    assert same(future, play(pickle.loads(packed), moves[2:]))


def test_a_state_of_another_number_of_slots_is_refused(make_vec):
    two, three = make_vec(2), make_vec(3)
    two.reset(seed=0), three.reset(seed=0)
    with pytest.raises(ValueError, match=r"the state is of \[3, 1, 32, 32, 3\] .* made with the same arguments"):
        two.set_state(three.get_state())


def test_torch_output_is_the_numpy_output_as_tensors(make_vec, actions):
    tensors = make_vec(2, output="torch", max_episode_steps=2, action_mode="box")
    arrays = make_vec(2, max_episode_steps=2, action_mode="box")
    assert torch.equal(tensors.reset(seed=0)[0], torch.from_numpy(arrays.reset(seed=0)[0]))
    for move in actions(arrays.action_space, 2):
        answer, expected = tensors.step(torch.from_numpy(move)), arrays.step(move)
        assert torch.equal(answer[0], torch.from_numpy(expected[0])) and answer[1].dtype == torch.float32
        assert all(torch.equal(a, torch.from_numpy(b)) for a, b in zip(answer[2:4], expected[2:4], strict=True))
    assert torch.equal(answer[4]["final_obs"][0], torch.from_numpy(expected[4]["final_obs"][0]))


def test_observations_and_infos_are_new_at_every_call(make_vec):
    envs = make_vec(2, action_mode="discrete", info_frames=True)
    first, infos = envs.reset(seed=0)
    kept, told = first.copy(), pickle.loads(pickle.dumps(infos))
    envs.step(np.array([1, 2]))
    assert np.array_equal(first, kept) and data_equivalence(infos, told, exact=True)


def test_rendering_gives_one_picture_per_slot_or_a_grid(make_vec):
    envs = make_vec(3, render_mode="rgb_array")
    observations = envs.reset(seed=0)[0]
    frames = envs.render()
    assert isinstance(frames, tuple) and np.array_equal(frames, observations)
    grid = envs.render_tiled()
    assert grid.shape == (64, 64, 3) and np.array_equal(grid[:32, 32:], frames[1]) and not grid[32:, 32:].any()


def test_frame_lists_start_again_with_each_slots_episode(make_vec):
    envs = make_vec(2, render_mode="rgb_array_list", task=Ends(_1=2), action_mode="discrete")
    envs.reset(seed=0)
    for _ in range(2):
        observations = envs.step(np.zeros(2, int))[0]
    frames = envs.render()
    assert [len(list_of_slot) for list_of_slot in frames] == [3, 1]
    assert np.array_equal([list_of_slot[-1] for list_of_slot in frames], observations)


def test_one_window_shows_all_slots(make_vec, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    envs = make_vec(4, render_mode="human", action_mode="discrete")
    envs.reset(seed=0)
    assert envs.render() is None and envs._window._screen.get_size() == (512, 512)
    assert envs.clone().render_mode is None
    envs.close()
