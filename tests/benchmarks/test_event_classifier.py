"""The classifier of events: that it learns, that the weights that are shipped know the true events, and its errors."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from benchmarks import event_classifier as subject
from benchmarks.twins import HORIZON, Twins, load_twins

TINTS = {"lights_out": (-60, -60, -60), "lights_up": (60, 60, 60), "protective_suit": (-40, 60, -40)}
LARGEST = 500_000  # bytes of the weights that are shipped


def made_up_twins(count: int, seed: int) -> list[Twins]:
    """Random smooth pictures, and the same in another tint."""
    rng = np.random.default_rng(seed)
    pairs = []
    for index in range(count):
        kind, tint = list(TINTS.items())[index % len(TINTS)]
        picture = rng.integers(60, 196, (HORIZON, 4, 4, 3)).repeat(8, axis=1).repeat(8, axis=2)
        clips = [SimpleNamespace(frames=(picture + np.array(t)).astype(np.uint8)) for t in ((0, 0, 0), tint)]
        clips[1].meta = {"event": {"kind": kind}}
        pairs.append(Twins(*clips))
    return pairs


def frames(pairs: list[Twins], side: int) -> np.ndarray:
    return np.stack([pair.after[side] for pair in pairs])


def test_it_learns_which_event_it_was_and_when_there_was_none(monkeypatch):
    monkeypatch.setattr(subject, "NOTHING_SHARE", 0.3)
    model = subject.train(made_up_twins(48, seed=0), epochs=40)
    held_out = made_up_twins(30, seed=1)
    without, shown = frames(held_out, 0), frames(held_out, 1)
    assert subject.is_among(subject.classify(model, without, shown), [pair.kind for pair in held_out], 1).mean() > 0.9
    nothing = subject.classify(model, without, without)
    assert subject.is_among(nothing, [subject.NOTHING] * len(held_out), 1).mean() > 0.9


def test_the_seed_decides_what_is_learned():
    twins = made_up_twins(6, seed=0)
    first, again, other = (subject.train(twins, seed, epochs=1).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_disturbing_changes_both_videos_but_keeps_them_alike():
    video = subject.prepare(frames(made_up_twins(8, seed=2), 0))
    one, two = subject.disturbed(video, video, torch.Generator().manual_seed(0))
    assert (one - two).abs().mean() > 0.005
    original = torch.minimum((one - video).abs().mean((1, 2, 3, 4)), (one - video.flip(-1)).abs().mean((1, 2, 3, 4)))
    assert (original < 0.1).all()


@pytest.mark.parametrize("side", [32, 64, 128])
def test_frames_of_any_size_are_seen_at_one_size(side):
    grey = np.full((2, HORIZON, side, side, 3), 51, np.uint8)
    seen = subject.prepare(grey)
    assert seen.shape == (2, HORIZON // 2, 3, subject.SIDE, subject.SIDE)
    torch.testing.assert_close(seen, torch.full_like(seen, 0.2))


def test_an_answer_counts_among_the_first_so_many():
    logits = torch.zeros(2, len(subject.ANSWERS))
    logits[:, 3], logits[:, 5], logits[:, 7] = 3, 2, 1
    kinds = [subject.ANSWERS[3], subject.ANSWERS[7]]
    assert subject.is_among(logits, kinds, 1).tolist() == [True, False]
    assert subject.is_among(logits, kinds, 2).tolist() == [True, False]
    assert subject.is_among(logits, kinds, 3).tolist() == [True, True]


def test_weights_for_other_events_are_refused(tmp_path):
    weights = subject.EventClassifier().state_dict()
    save_file(weights, tmp_path / "old.safetensors", metadata={"answers": "lights_out nothing"})
    with pytest.raises(ValueError, match="train it anew"):
        subject.load_classifier(tmp_path / "old.safetensors")


def test_what_is_saved_is_what_is_loaded(tmp_path):
    model = subject.EventClassifier()
    subject.save_classifier(model, tmp_path / "weights" / "events.safetensors")
    loaded = subject.load_classifier(tmp_path / "weights" / "events.safetensors").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())


def test_the_weights_that_are_shipped_are_small_and_know_true_events(tmp_path, monkeypatch):
    pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")
    monkeypatch.chdir(tmp_path)
    assert subject.WEIGHTS.stat().st_size < LARGEST
    model = subject.load_classifier()
    twins = load_twins(None, split="test", per_kind=1, context=2, size=64, seed=9)
    without, shown = frames(twins, 0), frames(twins, 1)
    assert subject.is_among(subject.classify(model, without, shown), [pair.kind for pair in twins], 1).mean() > 0.6
    nothing = subject.classify(model, without, without)
    assert subject.is_among(nothing, [subject.NOTHING] * len(twins), 1).mean() > 0.9
