"""The cost of training on tiny sizes: what is counted is counted right, and compression pays."""

import json

import pytest
import torch

from benchmarks import report, training_cost
from benchmarks.training_cost import COMPRESSED, FULL, TARGETS, Trainer, full_context
from world_model.config import TINY

CPU = torch.device("cpu")
PER_LATENT = TINY.token_grid[0] * TINY.token_grid[1]
PER_SLOT = TINY.memory_grid[0] * TINY.memory_grid[1]


@pytest.mark.parametrize("history", [8, 16])
def test_full_context_keeps_every_latent_and_compression_does_not(history):
    compressed = Trainer(TINY, history, 1, CPU, 0).iterate()
    full = Trainer(full_context(TINY, history + TARGETS), history, 1, CPU, 0).iterate()
    clean_and_noisy = history + TARGETS - 1 + TARGETS  # the sink is the first latent; the last one is noisy only
    assert full.tokens == PER_LATENT * clean_and_noisy
    least = PER_LATENT * (1 + TINY.memory.adjacent_latents + TARGETS - 1 + TARGETS)
    assert least < compressed.tokens <= least + PER_SLOT * (history + TARGETS) // 2
    assert compressed.tokens < full.tokens and compressed.saved < full.saved


def test_an_iteration_trains():
    trainer = Trainer(TINY, 4, 2, CPU, 0)
    before = {name: value.clone() for name, value in trainer.stage.weights().items()}
    first, second = trainer.iterate(), trainer.iterate()
    changed = [name for name, value in trainer.stage.weights().items() if not torch.equal(value, before[name])]
    assert any("blocks" in name for name in changed) and any("compressor" in name for name in changed)
    assert first.tokens == second.tokens and first.saved == second.saved > 0 and second.seconds > 0
    assert second.peak == 0


def test_two_clips_keep_twice_as_much_as_one():
    one, two = (Trainer(TINY, 4, batch, CPU, 0).iterate() for batch in (1, 2))
    assert one.tokens == two.tokens and two.saved / one.saved == pytest.approx(2, rel=0.15)


def test_the_command_prints_its_table_and_writes_its_results(tmp_path, capsys):
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    options = ["--preset", "tiny", "--histories", "4", "8", "--rounds", "1", "--json", str(out), "--plot", str(plot)]
    assert report.run(training_cost.main, training_cost.parse(options)) == 0
    printed = capsys.readouterr().out
    assert "| none (floor) | 0 " in printed and "history 8: " in printed
    lines = json.loads(out.read_text())["results"]["lines"]
    assert [(line["memory"], line["history"]) for line in lines] == [
        (COMPRESSED, 0), (COMPRESSED, 4), (FULL, 4), (COMPRESSED, 8), (FULL, 8)
    ]  # fmt: skip
    assert plot.is_file()


def test_impossible_numbers_end_in_one_sentence(capsys):
    assert report.run(training_cost.main, training_cost.parse(["--histories", "8", "0"])) == 2
    assert capsys.readouterr().err.strip() == "error: --histories is 0; give at least 1"
    assert report.run(training_cost.main, training_cost.parse(["--histories", "8", "--device", "cuda:77"])) == 2
    assert "the device 'cuda:77' is not available here" in capsys.readouterr().err
