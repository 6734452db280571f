"""The published history compressor, at small and at full width."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import torch

from world_model.config import TransformerConfig
from world_model.large.compressor import HistoryCompressor
from world_model.large.config import WORLDPLAY2_14B
from world_model.large.names import published_name


def drawn(name: str, shape: tuple[int, ...], seed: int, gain: float) -> torch.Tensor:
    """A parameter of the full-width cases, which are not stored but follow from their names (splitmix64)."""
    base = np.frombuffer(hashlib.sha256(f"{seed}|{name}".encode()).digest()[:8], "<u8")[0]
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = base + np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = 2 * ((z >> np.uint64(40)) / 2**24 - 0.5)
    if len(shape) == 1:
        u = 0.1 * u
    elif name.endswith("gamma"):
        u = 1 + 0.25 * u
    else:
        u = gain * u * np.sqrt(3 / (count / shape[0]))
    return torch.from_numpy(u.astype(np.float32)).reshape(shape)


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
            name: drawn(names[name], tuple(value.shape), notes["seed"], notes["gain"])
            for name, value in compressor.state_dict().items()
        }
    )
    golden.check(compressor(given["in.hr"].transpose(1, 2)), given["out.fine"], "fine")
