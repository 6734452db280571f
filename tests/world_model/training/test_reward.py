"""Learning a reward: what counts as truth, that a reward which can be read off the picture is learned and calibrated,
and that the command writes heads which a world takes."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch

from world_model.checkpoint import load_world, save_world
from world_model.config import TINY, RewardConfig
from world_model.controls import StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore, ShardWriter, write_manifest
from world_model.reward import RewardHeads, codec_digest, heads_of
from world_model.training import reward, reward_data
from world_model.training.reward_data import Judged, RunsOf, choose_cases, generated_runs, joined, true_runs
from world_model.training.reward_scores import auroc
from world_model.world import World

FRAMES, STEPS = 16, 10
TASKS = ("flash", "never")


def flashing_clip(seed: int) -> Clip:
    """Grey frames that turn white, which is rewarded once, and stay white."""
    rng = np.random.default_rng(seed)
    event = int(rng.integers(1, FRAMES))
    frames = rng.integers(60, 100, (FRAMES, 32, 32, 3), dtype=np.uint8)
    frames[event:] = 250
    rewards = np.eye(1, FRAMES, event, dtype=np.float32)[0]
    actions = np.zeros((FRAMES, 6), np.float32)
    captions = ((0, StructuredCaption("a hall")), (5, StructuredCaption("a hall", event="light")))
    nothing = np.zeros(FRAMES, np.float32)
    gone = np.arange(FRAMES) == 3  # ends without a reward
    return Clip(
        frames, actions, captions, None, {"flash": rewards, "never": nothing}, {"flash": rewards > 0, "never": gone}
    )


def write_store(folder, seeds) -> ClipStore:
    folder.mkdir()
    writer = ShardWriter(folder / "shard-00000.safetensors")
    for seed in seeds:
        writer.add(flashing_clip(seed))
    write_manifest(folder, [writer.close()])
    return ClipStore(folder)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flashes")
    return write_store(folder / "train", range(24)), write_store(folder / "validation", range(100, 116))


@pytest.fixture(scope="module")
def world():
    return World.random("tiny").eval().requires_grad_(False)


def cases_of(store, tasks=("flash",)):
    return choose_cases(store, tasks, STEPS, torch.Generator().manual_seed(0))


def heads_for(world, tasks=("flash",)) -> RewardHeads:
    config = RewardConfig(tasks, TINY.latent_shape, codec_digest(world.codec), window=2, widths=(4, 8, 4), hidden=8)
    return RewardHeads(config)


def after(steps: int):
    """The share of a budget of so many steps, for `fit`."""
    done = iter(range(steps + 1))
    return lambda: next(done) / steps


# What counts as truth.


def test_a_window_holds_the_reward_of_its_clip(stores):
    cases = cases_of(stores[0])
    assert len(cases) == len(stores[0]) and len({case.start for case in cases}) > 2
    for case in cases:
        event = int(case.clip.rewards["flash"].argmax())
        assert case.start < event <= case.start + STEPS


def test_steps_after_an_end_and_ends_without_a_reward_do_not_count(world, stores):
    cases = cases_of(stores[0], TASKS)
    runs = true_runs(world, cases, TASKS)
    for run, case in enumerate(cases):
        event = int(case.clip.rewards["flash"].argmax()) - case.start
        assert runs.counted[run, :, 0].tolist() == [0 < step <= event for step in range(STEPS + 1)]
        assert runs.ends[run, :, 0].tolist() == [step == event for step in range(STEPS + 1)]
        assert runs.counted[run, :, 1].tolist() == [0 < step < 3 - case.start for step in range(STEPS + 1)]
    assert not runs.ends[..., 1].any()


def test_windows_repeat_the_start_before_it_and_end_with_their_step(world, stores):
    runs = true_runs(world, cases_of(stores[0])[:2], ("flash",))
    latents = runs.windows(torch.tensor([0, 1]), torch.tensor([1, 5]), 4)
    assert torch.equal(latents, torch.stack([runs.latents[0, [0, 0, 0, 1]], runs.latents[1, 2:6]]).float())


def test_clips_without_the_task_or_too_short_are_refused(stores):
    with pytest.raises(ValueError, match="no reward for 'dance', it knows 'flash', 'never'"):
        cases_of(stores[0], ("dance",))
    with pytest.raises(ValueError, match="more than 16 frames"):
        choose_cases(stores[0], ("flash",), FRAMES, torch.Generator())


# The world's own runs.


def test_a_rollout_is_what_a_stream_shows_under_the_clips_actions_and_captions(world, stores):
    cases = cases_of(stores[0])[:3]
    runs = generated_runs(world, cases, ("flash",), seed=7)
    case, stream = cases[2], world.stream(1)
    rows = torch.tensor(case.clip.actions)
    stream.reset([0], [case.clip.frames[case.context]], [case.clip.caption_at(case.start)], [9], [rows[case.context]])
    for step in range(STEPS + 1):
        if step:
            stream.set_caption([0], **case.clip.caption_at(case.start + step).as_dict())
            stream.step(rows[None, [case.start + step]])
        torch.testing.assert_close(runs.latents[2, step].float(), stream.latents[0, -1], atol=5e-3, rtol=5e-3)
    assert torch.equal(runs.counted, true_runs(world, cases, ("flash",)).counted)


def test_runs_are_kept_for_the_next_time(tmp_path, stores, monkeypatch):
    save_world(World.random("tiny"), tmp_path / "world")
    of = RunsOf(load_world(tmp_path / "world"), ("flash",), STEPS, 0, tmp_path / "cache")
    made = of.make([stores[0].path], rollouts=2)
    assert (len(made[0]), len(made[1])) == (len(stores[0]), 2) and len(list((tmp_path / "cache").iterdir())) == 1
    monkeypatch.setattr(reward_data, "true_runs", None)
    kept = of.make([stores[0].path], rollouts=2)
    assert all(
        torch.equal(a.latents, b.latents) and torch.equal(a.counted, b.counted) for a, b in zip(made, kept, strict=True)
    )
    with pytest.raises(TypeError):
        of.make([stores[0].path], rollouts=3)  # others, so they have to be made


# Learning.


def test_a_reward_that_can_be_seen_is_learned_and_calibrated(world, stores):
    learned, held_out = (true_runs(world, cases_of(store), ("flash",)) for store in stores)
    heads = heads_for(world)
    reward.fit(heads, learned, after(80), torch.Generator().manual_seed(0))
    heads = reward.calibrated(heads, held_out)
    chances, events = reward.chances_of(heads, held_out)[..., 0], held_out.rewards[..., 0].numpy() > 0
    counted = held_out.counted[..., 0].numpy()
    assert auroc(chances[counted], events[counted]) > 0.97
    assert chances[counted].mean() == pytest.approx(events[counted].mean(), abs=0.03)  # half of every batch had events
    assert 0 < heads.config.thresholds[0] < 1 and heads.config.amounts == (1.0,)


def test_fitting_is_the_same_again_for_the_same_seed(world, stores):
    runs, said = true_runs(world, cases_of(stores[0]), ("flash",)), []
    for _ in range(2):
        heads = heads_for(world)
        reward.fit(heads, runs, after(3), torch.Generator().manual_seed(0))
        said.append(heads(runs.windows(torch.arange(5), torch.arange(5), 2)))
    assert torch.equal(*said) and said[0].any()


def test_half_of_a_batch_shows_events(world, stores):
    runs = true_runs(world, cases_of(stores[0]), ("flash",))
    rows, steps = reward.Draws(runs, torch.Generator().manual_seed(0)).draw().unbind(1)
    assert runs.counted[rows, steps].all()
    assert runs.rewards[rows, steps].mean() >= 0.5


def test_a_task_that_nothing_is_known_of_is_refused(world, stores):
    runs = true_runs(world, cases_of(stores[0], TASKS), TASKS)
    with pytest.raises(ValueError, match="no step of the recordings is rewarded for 'never'"):
        reward.fit(heads_for(world, TASKS), runs, after(1), torch.Generator())


def test_joined_runs_are_all_runs(world, stores):
    parts = [true_runs(world, cases_of(store), ("flash",)) for store in stores]
    assert len(joined(*parts)) == sum(map(len, parts)) and isinstance(joined(*parts), Judged)


# The command.


@pytest.fixture
def command(tmp_path, stores, monkeypatch):
    """Runs `wp2 train reward` on a tiny world for a moment."""
    save_world(World.random("tiny"), tmp_path / "world")
    monkeypatch.setattr(reward, "_tasks", lambda data: ("flash",))
    parser = argparse.ArgumentParser()
    reward.add_arguments(parser)
    data = ["--data", str(stores[0].path), "--validation", str(stores[1].path)]
    small = ["--minutes", "0.01", "--rollouts", "4", "--steps", str(STEPS)]
    place = ["--world", str(tmp_path / "world"), "--out", str(tmp_path / "world")]
    return lambda *more: reward.main(parser.parse_args([*data, *small, *place, *more]))


def test_the_command_writes_heads_that_the_world_takes(command, tmp_path, capsys):
    command()
    assert heads_of(load_world(tmp_path / "world")).tasks == ("flash",)
    out = capsys.readouterr().out
    assert "| generated | flash | 2 " in out and "reward.safetensors" in out


def test_an_interrupt_leaves_the_old_file(command, tmp_path, monkeypatch):
    file = tmp_path / "world" / "reward.safetensors"
    file.write_text("old")
    monkeypatch.setattr(reward, "calibrated", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        command()
    assert file.read_text() == "old"


@pytest.mark.parametrize("option", ["--minutes", "--rollouts", "--steps"])
def test_numbers_that_cannot_work_are_refused(command, option):
    with pytest.raises(ValueError, match=f"{option} is"):
        command(option, "0")


def test_recordings_without_rewards_are_refused(tmp_path):
    clip = flashing_clip(0)
    (tmp_path / "bare").mkdir()
    writer = ShardWriter(tmp_path / "bare" / "shard-00000.safetensors")
    writer.add(Clip(clip.frames, clip.actions, clip.captions))
    write_manifest(tmp_path / "bare", [writer.close()])
    with pytest.raises(ValueError, match="hold no rewards"):
        reward._tasks([tmp_path / "bare"])
