"""The table of techniques: every line adds to those above it, and what cannot be used is said and passed over."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import cumulative, speed
from benchmarks.cumulative import PLAIN, Result, lines, measure, table
from benchmarks.walk import begun
from world_model.acceleration import Techniques
from world_model.checkpoint import load_world
from world_model.large import world as large_world
from world_model.large.config import MAX_LATENTS
from world_model.large.folder import LargeWorld, write_experts

EXACT = ("+ fused QKV", "+ cached text")


@pytest.fixture
def uncompiled(monkeypatch):
    """Without the line that takes a compiler's minute."""
    monkeypatch.setattr(cumulative, "LADDER", {k: v for k, v in cumulative.LADDER.items() if "compiled" not in v})


def test_every_line_adds_one_technique_to_those_that_can_be_used(monkeypatch):
    monkeypatch.setattr(Techniques, "missing", lambda self, device: "needs a compiler" if self.compiled else None)
    found = {line.name: line for line in lines(torch.device("cpu"))}
    assert found["+ compiled blocks"].missing == "needs a compiler"
    assert found["+ bf16"].techniques == Techniques(fused_projections=True, cached_text=True, bfloat16=True)
    last = found["+ fp8 in place of int8"].techniques
    assert last.float8 and last.graphed and not last.int8 and not last.compiled
    changed = [name for change in cumulative.LADDER.values() for name, on in change.items() if on]
    assert sorted(changed) == sorted(vars(Techniques()))


def test_lines_are_measured_and_near_the_plain_world(listening_world, uncompiled):
    results = measure(listening_world, 2, rounds=2, seconds=0.01, seed=0)
    assert list(results) == [PLAIN, *cumulative.LADDER]
    plain = results[PLAIN]
    assert plain.of_plain.mean == plain.of_the_line_above.mean == 1 and plain.difference == 0
    for name, result in results.items():
        if isinstance(result, Result):
            assert result.steps_per_second.mean > 0 and result.difference < (1e-5 if name in EXACT else 0.1)
    assert results["+ CUDA graph"] == "needs a GPU"
    printed = table(results)
    assert printed.count("\n") == len(results) + 1 and "| + CUDA graph" in printed and "needs a GPU" in printed
    assert [curve.name for curve in cumulative.curves({2: results})][0] == PLAIN


def test_the_command_prints_its_table_and_writes_its_results(
    listening_world, uncompiled, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(speed, "load_world", lambda *_: listening_world)
    monkeypatch.setattr(speed, "QUICK", speed.Effort(rounds=1, seconds=0.01, rollout=2, late_step=2))
    file = tmp_path / "speed.json"
    speed.main(speed.parse(["--cumulative", "--quick", "--slots", "1", "--json", str(file)]))
    assert "slots: 1" in capsys.readouterr().out
    written = json.loads(file.read_text())["results"]["cumulative"]["1"]
    assert written["+ CUDA graph"] == "needs a GPU" and written["+ fused QKV"]["of_plain"]["mean"] > 0


@pytest.fixture
def large_folder(toy, blocks, lively_experts, monkeypatch, tmp_path):
    """A few-step world as `wp2 convert` writes it, with stand-ins for its codec and caption encoder."""
    large = LargeWorld(toy, "fast")
    tensors = {name: expert.state_dict().items() for name, expert in lively_experts(large).items()}
    write_experts(tmp_path / "fast", large, tensors, torch.float32)
    monkeypatch.setattr(large_world, "open_codec", lambda place, device: blocks)
    monkeypatch.setattr(large_world, "open_text", lambda *_: lambda text: torch.ones(2, 8))
    return tmp_path / "fast"


def test_a_large_world_in_a_folder_has_the_same_lines(large_folder, uncompiled, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(speed, "QUICK", speed.Effort(rounds=1, seconds=0.01, rollout=2, late_step=2))
    file = tmp_path / "speed.json"
    given = ["--cumulative", "--quick", "--slots", "1", "--json", str(file), "--world", str(large_folder)]
    speed.main(speed.parse(given))
    assert "world 'toy' on cpu" in capsys.readouterr().out
    written = json.loads(file.read_text())["results"]["cumulative"]["1"]
    assert list(written) == [PLAIN, *cumulative.LADDER]
    assert written.pop("+ CUDA graph") == "needs a GPU" and "8.9" in written.pop("+ fp8 in place of int8")
    for name, line in written.items():
        assert line["steps_per_second"]["mean"] > 0
        assert line["difference"] < (1e-5 if name in (PLAIN, *EXACT) else 0.1)


def test_a_block_ends_where_the_positions_of_a_large_world_do(large_folder):
    world = load_world(large_folder, dtype="float32")
    stream = begun(world.stream(1), 0)
    assert cumulative._steps_left(stream) == (MAX_LATENTS - 4) // 4


def test_a_device_without_cumulative_is_refused():
    with pytest.raises(ValueError, match="--device cuda is for --cumulative"):
        speed.main(speed.parse(["--device", "cuda"]))
