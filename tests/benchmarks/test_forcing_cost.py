"""The cost of Stable Forcing on tiny sizes: what grows with the rollout grows, and what must not does not."""

import json
import multiprocessing
import threading
from dataclasses import replace
from functools import lru_cache, partial

import pytest
import torch

from benchmarks import forcing_cost, report
from benchmarks.forcing import CLIPWISE, FULL, PARTS, REPLAY, Apart, Cost, Forcing, _serve, predicted_growth
from world_model.config import TINY

CLIP = 4
PER_LATENT = TINY.token_grid[0] * TINY.token_grid[1]
PER_SLOT = TINY.memory_grid[0] * TINY.memory_grid[1]
RESTFUL = replace(TINY, curriculum=replace(  # one evaluation for a chunk, and a short beginning
    TINY.curriculum,
    few_step=replace(TINY.curriculum.few_step, blocks=(8,)),
    stable_forcing=replace(TINY.curriculum.stable_forcing, start=4),
))  # fmt: skip
START = RESTFUL.curriculum.stable_forcing.start


@lru_cache
def forcing(scores: str, rollout: int) -> Forcing:
    return Forcing(RESTFUL, scores, rollout, CLIP, 1, "cpu", 0)


@lru_cache
def cost(scores: str, rollout: int) -> Cost:
    return forcing(scores, rollout).iterate()


def score_tokens(of: Forcing) -> list[int]:
    """Of every sequence that the real score sees in an iteration."""
    tokens: list[int] = []
    of.stage.scores.real.world.transformer.register_forward_pre_hook(
        lambda _, arguments: tokens.append(arguments[0].shape[1])
    )
    of.iterate()
    return tokens


@pytest.mark.parametrize("rollout", [4, 16])
def test_tokens_of_a_score_are_bounded_clip_wise_and_every_latent_in_full_context(rollout):
    memory = TINY.memory
    slots = min(memory.budget_slots, (START + rollout - CLIP - 1) // memory.temporal_stride)
    compressed = PER_LATENT * (1 + memory.adjacent_latents + CLIP) + PER_SLOT * slots
    for scores, most in ((CLIPWISE, compressed), (FULL, PER_LATENT * (START + rollout))):
        of = forcing(scores, rollout)
        tokens = score_tokens(of)
        assert len(tokens) == rollout // CLIP
        assert max(tokens) == of.prospect().tokens == most


def test_the_replay_holds_as_much_with_many_chunks_as_with_few_and_full_context_scores_hold_more():
    few, many = (cost(CLIPWISE, rollout) for rollout in (4, 16))
    full = cost(FULL, 16)
    assert few.laps[REPLAY].held == many.laps[REPLAY].held == full.laps[REPLAY].held > 0
    assert many.most("held") < full.most("held")


def test_an_iteration_has_its_parts_in_order_and_trains_student_and_fake_score():
    of = forcing(CLIPWISE, 8)
    assert tuple(of.iterate(warming=True).laps) == tuple(cost(CLIPWISE, 8).laps) == PARTS
    assert min(lap.seconds for lap in cost(CLIPWISE, 8).laps.values()) > 0
    before = {name: value.clone() for name, value in of.stage.weights().items()}
    of.iterate()
    changed = [name for name, value in of.stage.weights().items() if not torch.equal(value, before[name])]
    assert any(name.startswith("transformer.blocks") for name in changed)
    assert any(name.startswith("fake.transformer.blocks") for name in changed)


def test_the_prediction_grows_with_the_square_of_a_long_sequence_and_in_step_with_the_batch():
    one, two = (predicted_growth(TINY, tokens, 1) for tokens in (100_000, 200_000))
    assert two / one == pytest.approx(4, rel=0.05)
    assert predicted_growth(TINY, 1000, 3) == 3 * predicted_growth(TINY, 1000, 1)


@pytest.mark.parametrize("scores", [CLIPWISE, FULL])
def test_the_prediction_covers_what_is_held(scores):
    assert cost(scores, 16).most("held") < forcing(scores, 16).prospect().growth


class InThisProcess:
    """Stands in for `Apart`, without another process to wait for."""

    def __init__(self, make, threads, limit):
        self.forcing = make()

    def __enter__(self):
        return self.forcing

    def __exit__(self, *error):
        pass


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(forcing_cost, "Apart", InThisProcess)
    monkeypatch.setitem(forcing_cost.PRESETS, "tiny", RESTFUL)
    monkeypatch.setattr(forcing_cost, "MANY", 8)


OPTIONS = ["--preset", "tiny", "--clip", "4", "--rollouts", "4", "8", "--rounds", "1"]


def test_the_command_prints_its_table_and_writes_its_results(here, tmp_path, capsys):
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    settings = forcing_cost.parse([*OPTIONS, "--json", str(out), "--plot", str(plot)])
    assert report.run(forcing_cost.main, settings) == 0
    printed = capsys.readouterr().out
    assert (
        "8 latents: full context takes " in printed
        and "its scores " in printed
        and "the replay of 4 chunks holds " in printed
    )
    results = json.loads(out.read_text())["results"]
    assert [(line["scores"], line["rollout"], len(line["costs"])) for line in results["lines"]] == [
        (CLIPWISE, 4, 1), (FULL, 4, 1), (CLIPWISE, 8, 1), (FULL, 8, 1)
    ]  # fmt: skip
    assert set(results["ratios"]) == {"4", "8"} and len(set(results["replay_held"].values())) == 1
    assert plot.is_file()


def test_what_would_not_fit_is_not_run(here, monkeypatch, capsys):
    def no_room(config, tokens, batch):
        return 2**60 if tokens > 150 else 0

    monkeypatch.setattr("benchmarks.forcing.predicted_growth", no_room)
    assert report.run(forcing_cost.main, forcing_cost.parse(OPTIONS)) == 0
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in row.split("|")[1:5]] for row in printed.splitlines() if row.startswith("| ")]
    cells = {(scores, latents): (tokens, seconds) for scores, latents, tokens, seconds in rows}
    assert cells[FULL, "8"] == (str(PER_LATENT * (START + 8)), "out of memory")
    assert "out of memory" not in {cells[key][1] for key in ((FULL, "4"), (CLIPWISE, "4"), (CLIPWISE, "8"))}
    assert "4 latents: full context takes" in printed and "8 latents: full context takes" not in printed


def _broken():
    raise ValueError("no such thing")


def test_a_process_that_ends_early_is_one_sentence(monkeypatch):
    forked = multiprocessing.get_context("fork")  # need not import everything anew
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: forked)
    with Apart(_broken, 1, 1.0) as side, pytest.raises(ChildProcessError, match="ended with code 1"):
        side.prospect()


def test_a_process_answers_until_the_connection_is_closed():
    ours, theirs = multiprocessing.Pipe()
    server = threading.Thread(target=_serve, args=(theirs, partial(forcing, FULL, 4), torch.get_num_threads(), 1.0))
    server.start()
    ours.send(("prospect",))
    assert ours.recv().tokens == PER_LATENT * (START + 4)
    ours.send(("iterate", True))
    assert tuple(ours.recv().laps) == PARTS
    ours.close()
    server.join(timeout=30)
    assert not server.is_alive()


def test_impossible_numbers_end_in_one_sentence(capsys):
    for options, sentence in (
        (["--rollouts", "32", "0"], "--rollouts is 0; give at least 1"),
        (["--rollouts", "32", "40"], "--rollouts has 40; give multiples of 32, the latents of a clip"),
        (["--limit-gb", "0"], "--limit-gb is 0.0; give a number above 0"),
        (["--device", "cuda:77"], "the device 'cuda:77' is not available here"),
    ):
        assert report.run(forcing_cost.main, forcing_cost.parse(options)) == 2
        assert sentence in capsys.readouterr().err
