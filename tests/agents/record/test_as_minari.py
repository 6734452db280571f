"""A recording for Minari opens in Minari, and shows what the clips show."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector.utils import batch_space

from agents import policies
from world_model.data.store import ClipStore
from wp2env.spaces import ACTION_MODES, Turns

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")


@pytest.fixture
def opened(recorded, monkeypatch):
    """The recording, opened by its name."""
    out = recorded(form="minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(out.parent))
    return minari.load_dataset("walks-v0")


def test_minari_opens_it_and_shows_every_episode_to_the_last_bit(opened, undisturbed):
    store = ClipStore(undisturbed)
    assert opened.total_episodes == len(store) == 5
    assert opened.total_steps == sum(len(clip.frames) - 1 for clip in store)
    assert opened.observation_space.shape == (64, 64, 3) and opened.action_space.n == 13
    for episode, clip in zip(opened.iterate_episodes(), store, strict=True):
        np.testing.assert_array_equal(episode.observations, clip.frames)
        assert episode.actions.tolist() == clip.meta["choices"] and all(
            a in opened.action_space for a in episode.actions
        )
        np.testing.assert_array_equal(episode.rewards, clip.rewards["short"][1:])
        np.testing.assert_array_equal(episode.terminations, clip.terminated["short"][1:])
        assert episode.terminations[-1] != episode.truncations[-1] and not episode.truncations[:-1].any()
        scenes = [scene.decode() for scene in episode.infos["caption"]["scene"]]
        assert scenes == [clip.caption_at(frame).scene for frame in range(len(clip.frames))]


def test_the_dataset_tells_what_made_it(opened):
    told = opened.storage.metadata
    assert told["dataset_id"] == "walks-v0" and told["algorithm_name"] == "random"
    assert told["provenance"]["task"] == "short" and len(told["provenance"]["world_sha256"]) == 16
    first = next(iter(opened.storage.get_episode_metadata([3])))
    assert first["seed"] > 0 and first["options"] == {"start_index": 1, "episode": 3}


def test_the_environment_can_be_recovered(opened):
    env = opened.recover_environment()
    picture, info = env.reset(seed=0, options={"start_index": 1})
    assert env.action_space == opened.action_space and picture in opened.observation_space
    assert env.step(3)[4]["reward_source"] == "short"
    env.close()


def test_a_folder_that_minari_could_not_name_is_refused(recorded):
    with pytest.raises(ValueError, match="'walks' is no name of a Minari dataset; call it NAME-v0"):
        recorded("walks", form="minari")


@pytest.mark.parametrize("mode", ["dict", "multidiscrete", "box"])
def test_actions_of_every_space_are_kept(recorded, monkeypatch, mode):
    class Sampling:
        action_mode = mode

        def __init__(self, num_envs):
            self.space = batch_space(ACTION_MODES[mode](Turns()).space, num_envs)
            self.space.seed(0)

        def reset(self, mask):
            pass

        def act(self, observations):
            return self.space.sample()

    monkeypatch.setattr(policies, "load_policy", lambda text, num_envs, seed: Sampling(num_envs))
    out = recorded(form="minari", episodes=2)
    dataset = minari.MinariDataset(out / "data")
    for episode in dataset.iterate_episodes():
        for step in range(len(episode)):
            one = episode.actions[step] if mode != "dict" else {k: v[step] for k, v in episode.actions.items()}
            assert one in dataset.action_space
