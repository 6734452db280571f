"""The revisit benchmark on a tiny world with random weights and made-up walks."""

import json

import numpy as np
import pytest
import torch

from benchmarks import report, revisit
from benchmarks.inverse_dynamics import InverseDynamics
from benchmarks.walks import COMPRESSED, FULL, NONE, SHUFFLED, SMALL, WINDOW, affordable_slots, roll, variants
from world_model.checkpoint import save_world
from world_model.controls import ACTION_DIM, PERSPECTIVE, YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.store import ClipStore
from world_model.world import World

WAY, CASES, SIZE = 9, 3, 32


def walk(index: int) -> Clip:
    """A way out and back: the frames of the second half are those of the first one backwards."""
    rng = np.random.default_rng(index)
    out = rng.integers(0, 256, (WAY + 1, SIZE, SIZE, 3), dtype=np.uint8)
    rows = np.zeros((2 * WAY + 1, ACTION_DIM), np.float32)
    rows[:, PERSPECTIVE] = 1
    rows[1 : WAY + 1, YAW] = rng.choice([-8.0, 8.0], WAY)
    rows[WAY + 1 :, YAW] = -rows[WAY:0:-1, YAW]
    captions = ((0, StructuredCaption("a hall")), (5, StructuredCaption("a room")))
    return Clip(np.concatenate([out, out[-2::-1]]), rows, captions, meta={"level_seed": index})


@pytest.fixture(scope="module")
def world(listening_world) -> World:
    return listening_world


@pytest.fixture(scope="module")
def clips() -> list[Clip]:
    return [walk(index) for index in range(CASES)]


class Bar:
    def update(self, count: int) -> None:
        pass


def test_a_walk_takes_in_what_it_may_and_generates_the_rest(world, clips):
    true = torch.from_numpy(np.stack([clip.frames for clip in clips]))
    for observed in (WAY, 0):
        frames = roll(variants(world, world, WAY)[COMPRESSED], clips, [0, 1, 2], observed, Bar()).frames
        assert torch.equal(frames[:, : observed + 1], true[:, : observed + 1])
        assert all(not torch.equal(frames[:, t], true[:, t]) for t in range(observed + 1, 2 * WAY + 1))


def test_memories_cost_what_they_hold(world, clips):
    """Token grid 4 x 4, memory grid 2 x 2; mean over contexts of 9 to 17 latents after the first picture."""
    tokens = {
        name: float(roll(variant, clips, [0, 1, 2], WAY, Bar()).tokens[0])
        for name, variant in variants(world, world, WAY).items()
    }
    assert tokens[NONE] == 16 + 16 and tokens[WINDOW] == 16 + 2 * 16
    assert tokens[FULL] == 16 + 16 * np.mean(range(WAY, 2 * WAY))
    assert tokens[COMPRESSED] == tokens[SHUFFLED] == 16 + 2 * 16 + 4 * 4
    assert tokens[SMALL] == 16 + 2 * 16 + 2 * 4  # an eighth is not within reach of so short a walk: the least


def test_the_smaller_memory_is_an_eighth_of_the_full_context(world):
    doom = World.random("doom")
    tokens = 5 * 16 + 4 * affordable_slots(doom, 43)
    assert 8 <= 16 * (1 + 3 * 43) / 2 / tokens < 8.5


def test_shuffling_changes_the_way_back_alone(world, clips):
    contestants = variants(world, world, WAY)
    kept, shuffled = (roll(contestants[name], clips, [0, 1, 2], 0, Bar()).frames for name in (COMPRESSED, SHUFFLED))
    assert torch.equal(kept[:, : WAY + 1], shuffled[:, : WAY + 1])
    assert not torch.equal(kept[:, WAY + 1 :], shuffled[:, WAY + 1 :])


def test_a_perfect_return_scores_perfectly_and_a_frozen_one_does_not_move(world, clips):
    judge = revisit.Judge(InverseDynamics().eval(), clips)
    named = revisit.references(world, judge)
    assert (judge.consistency(judge.true)["PSNR (dB)"] == report.HIGHEST_PSNR).all()
    assert torch.allclose(judge.cost_and_liveliness(named[revisit.GAME])["motion"], torch.ones(CASES))
    assert (judge.cost_and_liveliness(named[revisit.FLOOR])["motion"] == 0).all()
    assert (judge.truth(named[revisit.FLOOR].frames)["PSNR (dB)"] < 20).all()


def test_spans_leave_out_what_the_raw_window_still_sees():
    named = revisit.spans(43, 4)
    assert list(named) == ["all", "3-8", "9-16", "17-32", "33-43"]
    assert named["3-8"] == slice(2, 8) and named["all"] == slice(2, 43)


def test_a_wide_window_leaves_no_empty_span():
    assert list(revisit.spans(43, 20)) == ["all", "11-16", "17-32", "33-43"]


def test_the_command_prints_tables_and_writes_its_results(world, clips, write_store, tmp_path, capsys, monkeypatch):
    save_world(world, tmp_path / "world")
    write_store(tmp_path / "data", clips)
    monkeypatch.setattr(revisit, "protocols", lambda quick: [revisit.Protocol("short", WAY, WAY)])
    monkeypatch.setattr(revisit, "load_clips", lambda *_, **__: ClipStore(tmp_path / "data"))
    settings = revisit.parse(["--world", str(tmp_path / "world"), "--cases", "3", "--batch", "3"])
    settings.json, settings.plot = tmp_path / "out.json", tmp_path / "out.png"
    assert report.run(revisit.main, settings) == 0
    printed = capsys.readouterr().out
    for name in (NONE, WINDOW, FULL, COMPRESSED, SMALL, SHUFFLED, revisit.FLOOR, revisit.CEILING, revisit.GAME):
        assert f"| {name}" in printed
    results = json.loads(settings.json.read_text())["results"]["short"]
    assert f"{COMPRESSED} - {NONE}" in results["PSNR (dB), against the true game"]
    assert settings.plot.is_file()


def test_a_single_walk_has_nobody_to_exchange_memories_with(capsys):
    assert report.run(revisit.main, revisit.parse(["--world", "doom", "--cases", "1"])) == 2
    assert "give 2 or more" in capsys.readouterr().err
