"""The published history compressor, at small and at full width."""

from __future__ import annotations

from dataclasses import replace

import torch

from world_model.config import TransformerConfig
from world_model.large.compressor import HistoryCompressor
from world_model.large.config import WORLDPLAY2_14B
from world_model.large.names import published_name


@torch.no_grad()
def test_golden_compressor_stages(golden):
    given = golden.tensors("d_compressor")
    compressor = golden.expert("high").compressor
    history = torch.cat([given["in.hr_latents"], given["in.hr_y"]]).transpose(0, 1)[None]
    x = compressor.input(history[:, :8].movedim(2, -1)).movedim(-1, 1)
    golden.check(x, given["mid.n8.input_layer"], "input")
    for index, stage in enumerate(compressor.blocks):
        x = stage(x)
        golden.check(x, given[f"mid.n8.block{index}"], f"block {index}")
    for index, stage in enumerate(compressor.attention):
        x = stage(x)
        golden.check(x, given[f"mid.n8.attn{index}"], f"attention {index}")
    for count in (4, 8, 12):
        golden.check(compressor(history[:, :count]), given[f"out.n{count}.fine"], f"fine, {count} latents")


@torch.no_grad()
def test_golden_compressor_at_full_width(golden):
    given, notes = golden.tensors("d2_compressor_fullwidth"), golden.notes("d2_compressor_fullwidth")
    width = notes["output_dim"]
    world = replace(WORLDPLAY2_14B.world, transformer=TransformerConfig(width=width, heads=4))
    compressor = HistoryCompressor(replace(WORLDPLAY2_14B, world=world))
    names = {
        name: published_name(f"compressor.{name}").removeprefix("memory_compress.") for name in compressor.state_dict()
    }
    assert {names[name]: list(value.shape) for name, value in compressor.state_dict().items()} == notes["keys"]
    compressor.load_state_dict(
        {
            name: golden.drawn(names[name], tuple(value.shape), notes["seed"], notes["gain"])
            for name, value in compressor.state_dict().items()
        }
    )
    golden.check(compressor(given["in.hr"].transpose(1, 2)), given["out.fine"], "fine")
