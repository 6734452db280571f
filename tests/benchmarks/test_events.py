"""The event benchmark on a tiny world with random weights and made-up twins."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import events, report
from benchmarks.twins import HORIZON, Twins, load_twins
from world_model.checkpoint import save_world
from world_model.controls import ACTION_DIM, NOTHING, PERSPECTIVE, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.doom.events import KINDS
from world_model.data.store import ShardWriter, write_manifest
from world_model.world import World

CONTEXT, SIZE, RECORDED_CONTEXT = 3, 32, 5
FRAMES = CONTEXT + HORIZON


def made_up_twins(index: int, kind: str, category: str) -> Twins:
    """Noise, and the same with a brighter square from the event on."""
    rng = np.random.default_rng(index)
    rows = np.zeros((RECORDED_CONTEXT + HORIZON, ACTION_DIM), np.float32)
    rows[:, PERSPECTIVE] = 1
    frames = rng.integers(0, 100, (len(rows), SIZE, SIZE, 3), dtype=np.uint8)
    changed = frames.copy()
    changed[RECORDED_CONTEXT:, 8:24, 8:24] += 100
    event = {"kind": kind, "category": category, "caption": f"{kind} happens", "frames": 8}
    captions = ((0, StructuredCaption("a hall")), (RECORDED_CONTEXT + 2, StructuredCaption("a court")))
    clips = [
        Clip(shown, rows, captions, meta={"level_seed": index // 2, "event": told})
        for shown, told in ((frames, None), (changed, event))
    ]
    return Twins(*clips)


@pytest.fixture(scope="module")
def world(listening_world) -> World:
    return listening_world


@pytest.fixture(scope="module")
def folder(world, write_store, tmp_path_factory):
    """A folder with that world and a store of one pair per kind."""
    folder = tmp_path_factory.mktemp("events")
    save_world(world, folder / "world")
    (folder / "data").mkdir()
    writer = ShardWriter(folder / "data" / "shard-00000.safetensors")
    kinds = [(kind, category) for category in KINDS for kind in KINDS[category]]
    for index, (kind, category) in enumerate(kinds):
        pair = made_up_twins(index, kind, category)
        writer.add(pair.without)
        writer.add(pair.shown)
    recipe = {"context": RECORDED_CONTEXT, "frames": RECORDED_CONTEXT + HORIZON}
    write_manifest(folder / "data", [writer.close()], recipe)
    return folder


@pytest.fixture(scope="module")
def twins(folder):
    return load(folder / "data", CONTEXT)


def load(store, context):
    return load_twins(store, split="test", per_kind=1, context=context, size=SIZE, seed=0)


@pytest.fixture
def settings(folder):
    data, world = str(folder / "data"), str(folder / "world")
    return events.parse(["--data", data, "--world", world, "--per-kind", "1", "--context", str(CONTEXT)])


def test_twins_begin_so_many_frames_before_their_event(twins):
    for pair in twins:
        differs = (pair.without.frames != pair.shown.frames).any(axis=(1, 2, 3))
        assert differs.tolist() == [False] * CONTEXT + [True] * HORIZON
        assert pair.after[1].shape == (HORIZON, SIZE, SIZE, 3)


def test_twins_with_too_little_before_the_event_are_refused(folder):
    with pytest.raises(ValueError, match="at least 6 frames before the event"):
        load(folder / "data", RECORDED_CONTEXT + 1)


def test_every_kind_gets_its_cases_beside_an_event_of_another_category(twins):
    cases = events.choose_cases(twins, 1, seed=0)
    assert len({case.twins.kind for case in cases}) == len(cases) == 20
    assert all(case.wrong.category != case.twins.category for case in cases)
    with pytest.raises(ValueError, match="1 twins of 'lights_out' and 2 are needed"):
        events.choose_cases(twins, 2, seed=0)


def test_an_event_is_told_for_as_long_as_it_takes_and_the_rest_of_the_caption_stays(twins):
    told = events.with_event(twins[0].without, {"caption": "it rains", "frames": 8}, CONTEXT)
    spoken = [told.caption_at(t) for t in range(FRAMES)]
    assert [caption.event for caption in spoken] == [NOTHING] * CONTEXT + ["it rains"] * 8 + [NOTHING] * 4
    assert [caption.scene for caption in spoken] == ["a hall"] * (CONTEXT + 2) + ["a court"] * (HORIZON - 2)


def test_what_differs_between_the_two_videos_is_the_work_of_the_caption(world, twins, settings):
    first, second = events.choose_cases(twins, 1, seed=0)[:2]
    meta = first.twins.shown.meta
    untold = replace(first.twins.shown, meta=meta | {"event": meta["event"] | {"frames": 0}})
    shown = events.videos(world, [events.Case(Twins(first.twins.without, untold), second.twins)], 0, settings)
    assert torch.equal(*shown[events.EVENT]) and torch.equal(*shown[events.FLOOR])
    for name in (events.WRONG, events.NOISE, events.TRUE, events.CEILING):
        assert not torch.equal(*shown[name])
    assert torch.equal(shown[events.TRUE][1], torch.from_numpy(np.array(first.twins.after[1]))[None])


def test_execution_is_the_cosine_of_what_changes():
    rng = np.random.default_rng(0)
    without = torch.from_numpy(rng.integers(100, 150, (4, 2, 8, 8, 3), dtype=np.uint8))
    shown = without.clone()
    shown[:, 0, 2:4] += 40  # nothing happens in the second frame
    change = torch.stack([shown[0], without[1] - (shown[1] - without[1]), without[2], shown[3].flip(1)])
    cosine = events.execution([without, change], [without, shown])
    torch.testing.assert_close(cosine[:3, 0], torch.tensor([1.0, -1.0, 0.0]))
    assert abs(cosine[3, 0]) < 0.9 and cosine[:, 1].isnan().all()


@pytest.mark.parametrize(
    "mean, wrong, noise, expected",
    [
        (0.1, 0, 0, 0),
        (0.2, 0, 0, 0),
        (0.5, 0.1, 0, 2),
        (0.8, 0, 0.1, 4),
        (0.9, 0, 0, 4),
        (0.5, 0.4, 0, 1),
        (0.5, 0, 0.4, 1),
    ],
)
def test_the_score_is_0_at_chance_or_the_higher_control_and_4_at_the_ceiling(mean, wrong, noise, expected):
    means = {events.EVENT: mean, events.WRONG: wrong, events.NOISE: noise, events.CEILING: 0.8}
    values = {name: np.full(6, value) for name, value in means.items()}
    interval = events.score(values, 0.2, np.arange(6) < 4, np.arange(6), seed=0)
    assert interval.mean == pytest.approx(expected) and interval.count == 4


def test_the_groups_are_the_papers(twins, settings):
    cases = events.choose_cases(twins, 1, seed=0)
    right = np.array([float(case.twins.category == events.INTERACTION) for case in cases])
    names = (events.EVENT, events.WRONG, events.NOISE, events.CEILING)
    tables = events.summarise({events.FIRST: dict.fromkeys(names, right)}, cases, seed=0)
    line = tables[events.FIRST][events.EVENT]
    assert [(line[g].mean, line[g].count) for g in events.GROUPS] == [(0.0, 13), (1.0, 7), (7 / 20, 20)]


def test_the_command_prints_its_tables_and_writes_its_results(settings, tmp_path, capsys):
    settings.json, settings.plot = tmp_path / "out.json", tmp_path / "out.png"
    assert report.run(events.main, settings) == 0
    printed = capsys.readouterr().out
    assert "20 cases, 1 of each kind, in 10 held-out" in printed
    for name in (
        events.EVENT,
        events.WRONG,
        events.NOISE,
        events.FLOOR,
        events.TRUE,
        events.CEILING,
        "score",
        "chance",
    ):
        assert f"| {name}" in printed
    results = json.loads(settings.json.read_text())["results"]
    execution = results[events.EXECUTION]
    assert execution[events.TRUE]["all"]["mean"] == pytest.approx(1) and execution[events.FLOOR]["all"]["mean"] == 0
    assert results["by kind"]["rain"][events.EXECUTION].keys() == {events.EVENT, events.CEILING}
    assert settings.plot.is_file()


def test_impossible_numbers_end_in_one_sentence(settings, capsys):
    settings.per_kind = 0
    assert report.run(events.main, settings) == 2
    assert capsys.readouterr().err.strip() == "error: --per-kind is 0; give at least 1"


def test_a_missing_game_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install \"worldplay2-gym\[doom\]\""):
        load(None, CONTEXT)
