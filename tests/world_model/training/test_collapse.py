"""The watch over rollouts: quiet while they look like the game, and the end of a run that no longer do."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from world_model.checkpoint import load_world
from world_model.training import checkpointing, cli, loop
from world_model.training.collapse import PATIENCE, CollapseWatch, Look
from world_model.training.losses import read_losses

TRUE = Look(torch.full((3,), 100.0), torch.full((3,), 40.0), torch.full((3,), 6.0))


def look(**last):
    """The true look but for what the last clip has."""
    values = {name: value.clone() for name, value in vars(TRUE).items()}
    for name, value in last.items():
        values[name][-1] = value
    return Look(**values)


def test_a_look_is_brightness_contrast_and_motion_in_grey_levels():
    frames = torch.zeros(2, 6, 3, 4, 4)
    frames[:, :, :, :, 2:] = 0.2
    frames[:, 4:] += 0.4
    frames[:, 5] += 0.1
    seen = Look.of(frames, 3)
    torch.testing.assert_close(seen.brightness, 127.5 * torch.tensor([1.1, 1.1, 1.55]))
    spread = float(frames[0, 0].std()) * 127.5
    torch.testing.assert_close(seen.contrast, torch.full((3,), spread))
    torch.testing.assert_close(seen.motion, torch.tensor([0.0, 0.0, 12.75]), atol=1e-4, rtol=0)


def test_the_watch_stays_quiet_while_rollouts_look_true():
    watch = CollapseWatch()
    for shift in (0.0, 20.0, -30.0, 5.0):
        seen = look(brightness=100 + shift, contrast=40 + shift / 2, motion=6 + shift / 10)
        assert watch.judge(seen, TRUE, 0.5 + shift / 100)[1] is None
    assert watch.outside == 0


@pytest.mark.parametrize(
    ("seen", "response", "complaint"),
    [
        (look(motion=0.0), 0.5, "the last clip's motion is 0.02 of the true one, outside 1/12 to 12"),
        (look(motion=90.0), 0.5, "the last clip's motion is 14.77"),
        (look(brightness=20.0), 0.5, "the last clip's brightness is -80 grey levels off, more than 60"),
        (look(brightness=220.0), 0.5, r"brightness is \+120"),
        (look(contrast=127.0), 0.5, "the last clip's contrast is 3.17 of the true one, outside 1/3 to 3"),
        (look(contrast=5.0), 0.5, "contrast is 0.13"),
        (look(), 0.1, "the response to actions is 0.100, from 0.500 at the beginning"),
        (look(), float("nan"), "the response to actions is nan"),
        (look(brightness=float("nan")), 0.5, "brightness is"),
        (look(contrast=float("nan")), 0.5, "contrast is nan"),
        (look(motion=float("nan")), 0.5, "motion is nan"),
    ],
)
def test_the_watch_fires_after_some_looks_in_a_row(seen, response, complaint):
    watch = CollapseWatch()
    assert watch.judge(TRUE, TRUE, 0.5) == (True, None)
    assert watch.judge(seen, TRUE, response) == (False, None)
    assert watch.judge(TRUE, TRUE, 0.5)[1] is None  # it was nothing
    for _ in range(PATIENCE - 1):
        assert watch.judge(seen, TRUE, response) == (False, None)
    better, reason = watch.judge(seen, TRUE, response)
    assert not better and reason is not None
    assert re.search(complaint, reason)


def test_the_best_look_is_the_one_nearest_to_the_true_one():
    watch = CollapseWatch()
    shifts = [20.0, 10.0, 15.0, 5.0, 5.0]
    assert [watch.judge(look(brightness=100 + s), TRUE, 0.5)[0] for s in shifts] == [True, True, False, True, False]
    assert watch.judge(look(motion=6.1), TRUE, 0.01)[0] is False  # nearer, but it no longer answers
    assert CollapseWatch.distance(TRUE, TRUE) == 0
    assert CollapseWatch.distance(look(brightness=250.0), TRUE) == pytest.approx(1)
    twice = replace(TRUE, motion=2 * TRUE.motion + 0.1)
    assert CollapseWatch.distance(twice, TRUE) == pytest.approx(0.6931, abs=1e-3)


def test_the_best_look_is_sought_anew_when_rollouts_grow():
    watch = CollapseWatch()
    shorter = Look(*(values[:2] for values in vars(TRUE).values()))
    assert watch.judge(shorter, shorter, 0.5)[0]
    worse = look(brightness=110.0)
    assert [watch.judge(seen, TRUE, 0.5)[0] for seen in (worse, worse, TRUE)] == [True, False, True]


def test_the_watch_goes_on_from_its_state():
    watch, again = CollapseWatch(), CollapseWatch()
    watch.judge(look(brightness=110.0), TRUE, 0.6)
    for _ in range(PATIENCE - 1):
        watch.judge(look(motion=0.0), TRUE, 0.6)
    again.load_state_dict(watch.state_dict())
    assert again.judge(look(motion=0.0), TRUE, 0.6)[1] is not None
    assert not again.judge(look(brightness=111.0), TRUE, 0.6)[0]
    assert again.judge(TRUE, TRUE, 0.1)[1] is None  # the first look out of the band in a row


@pytest.fixture
def train(stripes, hasty_world, tmp_path):
    """Runs so many steps of Stable Forcing in all."""

    def run(steps: int) -> None:
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        where = ("--data", str(stripes.path), "--out", str(tmp_path / "run"), "--device", "cpu")
        worlds = ("--start", str(hasty_world), "--teacher", str(hasty_world))
        cli.main(parser.parse_args([*where, *worlds, "--stage", "stable_forcing", "--steps", str(steps)]))

    return run


def test_a_run_that_collapses_stops_keeps_its_best_and_is_over(train, tmp_path, monkeypatch, capsys):
    """With looks at steps 0, 2, 4 ...: the second is the best, the fourth ends the run, in another session."""
    verdicts = {1: (None, 3.0), 2: (None, 1.0), 3: ("all is dark", 0.5), 4: ("all is darker", 0.5)}
    looks = []

    def complaint(watch, *_):
        looks.append(1)
        return verdicts[len(looks)][0]

    monkeypatch.setattr(CollapseWatch, "_complaint", complaint)
    monkeypatch.setattr(CollapseWatch, "distance", staticmethod(lambda *_: verdicts[max(1, len(looks))][1]))
    train(6)
    run = tmp_path / "run"
    assert checkpointing.progress_of(run).collapsed is None and len(looks) == 3
    train(20)
    progress = checkpointing.progress_of(run)
    assert progress.step == 7 and progress.collapsed == "all is darker"
    assert "stopped at step 7: all is darker" in capsys.readouterr().out

    entry = read_losses(run)[-1]  # has what was seen, and what only steps of the student tell
    assert entry["step"] == 7 and {"distance", "response", "brightness_1", "motion_true", "direction"} <= entry.keys()

    best = checkpointing.checkpoints(run / "best")
    assert [path.name for path in best] == ["step-00000001", "step-00000003"]
    averaged = {
        path: load_file(path / "averaged.safetensors") for path in (best[-1], checkpointing.checkpoints(run)[-1])
    }
    exported = load_world(run / "world").state_dict()
    for name in ("parallel_decoder.weight", "transformer.patch_embedding.weight"):
        kept, newest = (values[name] for values in averaged.values())
        assert torch.equal(exported[name], kept.bfloat16().float())
        assert not torch.equal(kept, newest)

    monkeypatch.setattr(loop, "step_generator", lambda *_: pytest.fail("trained on"))
    train(50)
    assert checkpointing.progress_of(run) == progress


def test_a_run_that_was_never_better_than_its_start_ends_as_it_began(train, tmp_path, monkeypatch):
    monkeypatch.setattr(CollapseWatch, "_complaint", lambda *_: "all is dark")
    train(20)
    run = tmp_path / "run"
    assert checkpointing.progress_of(run).collapsed == "all is dark" and not (run / "best").exists()
    began, ended = (load_world(run / name).state_dict() for name in ("start", "world"))
    name = "transformer.patch_embedding.weight"
    torch.testing.assert_close(ended[name], began[name], atol=1e-2, rtol=1e-2)
    learned = load_file(checkpointing.checkpoints(run)[-1] / "averaged.safetensors")[name]
    assert not torch.equal(learned, began[name])
