"""How the published models sample: solvers of the many-step ones, fused heads of the few-step one."""

from __future__ import annotations

import pytest
import torch

from world_model.large.few_step import CALLS, IntervalHeads, fuse_bank, grid_levels
from world_model.large.transformer import LargeTransformer
from world_model.solvers import DPMSolver, UniPC

SHIFT = 5.0


@pytest.mark.parametrize(("name", "solver"), [("unipc", UniPC), ("dpm", DPMSolver)])
def test_golden_solver(golden, name, solver):
    given = golden.tensors("k_schedulers")
    for steps in (6, 40):
        grid = solver(steps, SHIFT)
        golden.check(grid.levels, given[f"out.{name}.{steps}.sigmas"], f"{name} {steps} levels")
        assert torch.equal(grid.timesteps, given[f"out.{name}.{steps}.timesteps"])
        high = golden.notes("k_schedulers")["info"][f"{name}{steps}_high_steps"]
        assert int((grid.timesteps >= 900).sum()) == high
    run, x = solver(6, SHIFT), given["in.sample"]
    for index in range(6):
        x = run.step(x, given[f"in.velocity{index}"])
        golden.check(x, given[f"out.{name}.6.step{index}"], f"{name} step {index}")


@torch.no_grad()
@pytest.mark.parametrize("expert", ["high", "low"])
def test_golden_interval_heads_fuse_and_predict(golden, expert):
    given, notes = golden.tensors("f_pdd"), golden.notes("f_pdd")
    golden.check(grid_levels(), given["out.sigmas"], "levels")
    golden.check(grid_levels() * 1000, given["out.timesteps"], "timesteps")
    with torch.device("meta"):
        network = LargeTransformer(golden.config(), few_step=True)
    network.head_modulation = golden.expert(expert).transformer.head_modulation
    network.head = IntervalHeads(64, 64)
    for kind in ("weight", "bias"):
        fused = fuse_bank(given[f"in.{expert}.head.{kind}"], expert)
        golden.check(fused, given[f"out.{expert}.head.block_{kind}"], f"{expert} {kind}")
        setattr(network.head, kind, torch.nn.Parameter(fused))
    features = network.head_input(given[f"in.{expert}.x"], given[f"in.{expert}.e"])  # a noise level per token
    calls = [call for call in CALLS if call.expert == expert]
    for call, block in zip(calls, notes["blocks"][expert], strict=True):
        assert (call.local, call.start, call.end) == (block["local"], block["start"], block["end"])
        levels = grid_levels()
        assert float(levels[call.end - 1]) == pytest.approx(block["sigma_endpoint"], abs=1e-7)
        assert float(levels[call.end]) == pytest.approx(block["sigma_end"], abs=1e-7)
        assert float(levels[call.start] * 1000) == pytest.approx(block["t"], abs=1e-3)
        both = network.head(features, call.local)[:, :, 0].chunk(2, dim=-1)
        for name, value in zip(("displacement", "endpoint"), both, strict=True):
            golden.check(value, given[f"out.{expert}.block{call.local}.{name}"], f"{expert} {call.local} {name}")
