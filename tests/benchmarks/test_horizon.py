"""A long walk in a tiny world: nothing that lasts between steps grows, and positions stay where they were trained."""

import json
from argparse import Namespace
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from benchmarks import horizon, report
from benchmarks.walk import begin, flatness, walk
from world_model.world import World

STEPS, FULL = 1500, 500  # by FULL every buffer of the tiny memory has been full for long
PERIOD = 50  # steps between two looks
TEXTS = 6000  # more than a stream remembers


@pytest.fixture(scope="module")
def world() -> World:
    return horizon.random_world("tiny", 0).eval().requires_grad_(False)


def contents(value: object, path: str = "") -> Iterator[tuple[str, tuple]]:
    """Every tensor and container under a value, with its shape or length."""
    if isinstance(value, torch.Tensor):
        yield path, tuple(value.shape)
        return
    if isinstance(value, dict | list | tuple):
        yield path, (len(value),)
        named = value.items() if isinstance(value, dict) else enumerate(value)
    elif type(value).__module__.startswith("world_model.") and not isinstance(value, torch.nn.Module):
        named = vars(value).items()
    else:
        return
    for name, item in named:
        yield from contents(item, f"{path}.{name}")


class VisibleTokens:
    """The most tokens, of its past and of itself, that any token saw since the last look."""

    def __init__(self, world: World) -> None:
        self.most = 0
        self.hook = world.transformer.register_forward_pre_hook(self.note)

    def note(self, _: torch.nn.Module, arguments: tuple) -> None:
        mask = arguments[3]
        self.most = max(self.most, int(mask.sum(-1).max()))

    def look(self) -> int:
        most, self.most = self.most, 0
        return most


def test_a_walk_of_1500_steps_leaves_everything_as_large_as_it_was(world):
    stream, rng = begin(world, 1, 0, sampling_steps=1), np.random.default_rng(0)
    seen, memory = VisibleTokens(world), world.config.memory
    shapes, entries, visible = [], [], []
    with horizon.RotaryAges() as ages:
        for step in range(PERIOD, STEPS + 1, PERIOD):
            walk(stream, PERIOD, rng)
            assert stream.latents.isfinite().all() and stream.latents.abs().max() < 100, step
            shapes.append(dict(contents(stream)))
            cache = stream.snapshot().past.cache
            entries.append((int((cache.slot_time >= 0).sum()), int((cache.adjacent_time >= 0).sum())))
            visible.append(seen.look())
    seen.hook.remove()
    full = FULL // PERIOD
    assert len(shapes[0]) > 10 and all(now == shapes[0] for now in shapes)
    assert set(entries[full:]) == {(memory.budget_slots, memory.adjacent_latents)}
    assert len(set(visible[full:])) == 1 and visible[-1] <= most_visible(world)
    assert memory.adjacent_latents < ages.largest <= memory.max_age


def most_visible(world: World) -> int:
    """Tokens of the sink, the budget, the adjacent latents, and the chunk itself."""
    memory, (rows, columns), (few_rows, few_columns) = (
        world.config.memory, world.config.token_grid, world.config.memory_grid
    )  # fmt: skip
    latents = memory.sink_latents + memory.adjacent_latents + world.config.chunk_latents
    return latents * rows * columns + memory.budget_slots * few_rows * few_columns


def test_captions_that_never_come_again_do_not_pile_up(world, monkeypatch):
    monkeypatch.setattr(world.text, "encode", lambda texts: torch.zeros(len(texts), 2, 16))
    stream, sizes = begin(world, 1, 0), []
    for index in range(TEXTS):
        stream.set_caption([0], event=f"event number {index}")
        if index % 500 == 499:
            sizes.append(len(dict(contents(stream))))
    assert max(sizes) < TEXTS - 500


def test_the_early_stream_is_timed_at_its_step_and_the_late_one_goes_on(world):
    early, late = (begin(world, 1, 0, sampling_steps=1) for _ in range(2))
    walk(late, 3, np.random.default_rng(0))
    flat = flatness(early, late, 2, np.random.default_rng(1), 0)
    assert early.steps_taken.item() == 1 + 10 and late.steps_taken.item() == 1 + 3 + 20
    assert flat.early.mean > 0 and flat.ratio.count == 2


def test_ages_are_heard_where_they_become_angles_and_only_while_listening(world):
    stream = begin(world, 1, 0, sampling_steps=1)
    walk(stream, 4, np.random.default_rng(0))
    with horizon.RotaryAges() as ages:
        walk(stream, 1, np.random.default_rng(0))
    heard = ages.largest
    assert 5 <= heard <= 6  # the start picture is 5 latents back; an empty entry may stand one further
    walk(stream, 9, np.random.default_rng(0))
    assert ages.largest == heard


def test_the_command_prints_its_tables_and_writes_its_results(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(horizon, "EARLY_STEP", 10)
    monkeypatch.setattr(horizon, "SAMPLES", 2)
    monkeypatch.setattr(horizon, "BLOCKS", 2)
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    options = ["--preset", "tiny", "--steps", "40", "--sampling-steps", "1", "--json", str(out), "--plot", str(plot)]
    assert report.run(horizon.main, horizon.parse(options)) == 0
    printed = capsys.readouterr().out
    assert "late / early" in printed and "target within 5 %" in printed and "target within 1 %" in printed
    results = json.loads(out.read_text())["results"]
    assert [sample["step"] for sample in results["samples"]] == [10, 25, 40]
    assert len({sample["snapshot"] for sample in results["samples"]}) == 1
    assert results["samples"][-1]["age"] == results["max_age"] == 16 and plot.is_file()


def test_growth_is_told_in_percent_of_the_first_sample():
    samples = [horizon.Sample(step, 1.0, resident, 1, 0.0, True) for step, resident in ((1, 200), (2, 900), (3, 203))]
    assert horizon.growth(samples) == pytest.approx(1.5)
    assert "missed" in horizon.verdict("memory", 1.5, 1.0) and "met" in horizon.verdict("time", -4.9, 5.0)


def test_resident_memory_sees_what_is_allocated_and_has_a_fallback(monkeypatch):
    before = horizon.resident_bytes()
    block = np.ones(16 * horizon.MIB)  # large enough to come from the system and not from what was freed before
    assert horizon.resident_bytes() - before > 0.9 * block.nbytes
    monkeypatch.setattr(horizon.Path, "read_text", lambda _: (_ for _ in ()).throw(OSError()))
    assert horizon.resident_bytes() >= before


def test_too_short_a_walk_is_refused(capsys):
    assert report.run(horizon.main, Namespace(**vars(horizon.parse(["--steps", "1000"])))) == 2
    assert capsys.readouterr().err.startswith("error: --steps is 1000; the walk is compared with its step 1000")
