"""Every tensor of the published 14B checkpoints, by name and shape."""

from __future__ import annotations

import pytest
import torch

from world_model.large import WORLDPLAY2_14B, Expert
from world_model.large.few_step import bank_shape
from world_model.large.names import published_name, published_shape


@pytest.mark.parametrize("few_step", [False, True])
def test_golden_parameter_table_of_the_14b_model(golden, few_step):
    table = golden.notes("param_table_14B")
    with torch.device("meta"):
        state = Expert(WORLDPLAY2_14B, few_step).state_dict()
    names = {name: published_name(name, few_step) for name in state}
    shapes = {names[name]: list(published_shape(names[name], tuple(value.shape), 2)) for name, value in state.items()}
    expected = table["ar_bi"]
    if few_step:
        fused = table["few_step_compact_instead_of_head.head"]
        expected = {name: shape for name, shape in expected.items() if not name.startswith("head.head")} | fused
        for kind, shape in (("weight", fused["head.block_weight"]), ("bias", fused["head.block_bias"])):
            for expert in ("high", "low"):
                bank = bank_shape(tuple(shape), expert)
                assert list(bank) == table[f"few_step_bank_{expert}"][f"head.{kind}"]
    assert shapes == expected
