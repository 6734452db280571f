"""The published network: action module, one block, the whole forward pass."""

from __future__ import annotations

import torch

from world_model.transformer import Conditioning
from world_model.transformer.rotary import grid_positions, rotary_table


@torch.no_grad()
def test_golden_actions_are_embedded_and_added_as_published(golden):
    given = golden.tensors("a_action")
    network = golden.expert("high").transformer
    embedding = network.action_embedding(given["in.rows"])
    golden.check(embedding, given["out.embedding"], "embedding")
    group = torch.arange(12).repeat_interleave(golden.notes("a_action")["tokens_per_row"])
    for index, block in enumerate(network.blocks):
        expected = given[f"out.residual.block{index}"]
        golden.check(block.action(given["in.hidden"], embedding[None], group), expected, f"residual {index}")


@torch.no_grad()
def test_golden_block_has_the_published_order(golden):
    given, notes = golden.tensors("b_block"), golden.notes("b_block")
    block = golden.expert("high").transformer.blocks[0]
    frames, *grid = notes["grid"]
    positions = grid_positions(torch.arange(frames).float() + notes["temporal_offset"], tuple(grid))
    table = rotary_table(positions, 16)
    golden.check(table, torch.stack([given["in.rope.cos"], given["in.rope.sin"]]), "rotary table")
    steering = Conditioning(
        group=torch.arange(18),
        time=torch.empty(0),
        modulation=given["in.e6"],
        action=given["in.action_embedding"],
        caption=given["in.context_projected"],
        caption_mask=None,
    )
    seen = {}
    hooks = {
        "mid.3_self_attn_out": lambda: block.self_attention,
        "mid.5_norm3": lambda: block.cross_norm,
        "mid.6_cross_attn_out": lambda: block.cross_attention,
        "mid.7_x_after_action_residual": lambda: block.action,
        "mid.9_ffn_out": lambda: block.ffn,
    }
    handles = [
        find().register_forward_hook(lambda _, __, out, name=name: seen.update({name: out}))
        for name, find in hooks.items()
    ]
    out, _ = block(given["in.x"], steering, table, None, None)
    for handle in handles:
        handle.remove()
    seen["mid.3_self_attn_out"] = seen["mid.3_self_attn_out"][0]
    for name, value in seen.items():
        golden.check(value, given[name], name)
    golden.check(out, given["out.x"], "block")
