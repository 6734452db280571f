"""The network: actions, captions, positions, patches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from world_model.config import TINY
from world_model.thinning import redundant_entry
from world_model.transformer.actions import ActionEmbedding, ActionResidual
from world_model.transformer.attention import attention
from world_model.transformer.rotary import axis_sizes, grid_positions, rotary_table, rotate
from world_model.world import World


def forward(world, actions, latents, levels):
    network = world.transformer
    count = latents.shape[1]
    rows, columns = world.config.token_grid
    group = torch.arange(count).repeat_interleave(rows * columns)
    positions = grid_positions(torch.arange(count).float(), world.config.token_grid)
    caption = torch.randn(1, 3, world.config.text.width, generator=torch.Generator().manual_seed(9))
    given = network.condition(group, levels, actions, caption, torch.ones(1, count, 3, dtype=torch.bool))
    hidden, _ = network(network.embed_latents(latents), given, positions)
    return network.velocity(hidden, given.time, world.config.token_grid)


def test_an_untrained_action_branch_changes_nothing(tiny_world):
    """Eq. 2 starts as the identity: with the branch's last layer at zero, actions cannot matter."""
    fresh = World.random(TINY)
    fresh.load_state_dict(tiny_world.state_dict())
    for block in fresh.transformer.blocks:
        torch.nn.init.zeros_(block.action.out.weight)
        torch.nn.init.zeros_(block.action.out.bias)
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(1, 3, *TINY.latent_shape, generator=generator)
    levels = torch.rand(1, 3, generator=generator)
    some, none = torch.ones(1, 3, 6) * 0.9, torch.zeros(1, 3, 6)
    assert torch.equal(forward(fresh, some, latents, levels), forward(fresh, none, latents, levels))
    assert not torch.equal(forward(tiny_world, some, latents, levels), forward(tiny_world, none, latents, levels))
    untrained = ActionResidual(8)
    h = torch.randn(1, 4, 8)
    assert torch.equal(untrained(h, torch.randn(1, 2, 8), torch.tensor([0, 0, 1, 1])), h)


def test_blocks_that_run_again_in_the_backward_pass_learn_the_same():
    world = World.random(TINY)
    latents, levels = torch.randn(1, 3, *TINY.latent_shape), torch.rand(1, 3)
    with torch.no_grad():
        for parameter in world.transformer.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    found, runs = [], []
    world.transformer.blocks[0].ffn.register_forward_hook(lambda *_: runs.append(len(found)))
    for recompute in (False, True):
        world.transformer.recompute = recompute
        world.zero_grad()
        forward(world, torch.ones(1, 3, 6), latents, levels).square().mean().backward()
        found.append([p.grad.clone() for p in world.transformer.parameters() if p.grad is not None])
    assert runs == [0, 1, 1] and len(found[0]) > 20
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    with torch.no_grad():
        forward(world, torch.ones(1, 3, 6), latents, levels)
    assert runs == [0, 1, 1, 2]


def test_the_action_residual_is_the_paper_s_formula():
    """h + F([h, e]) with a plain concatenation, against the two-part product that is computed."""
    branch = ActionResidual(8)
    torch.nn.init.normal_(branch.out.weight)
    h, e, group = torch.randn(2, 6, 8), torch.randn(2, 3, 8), torch.tensor([0, 0, 1, 1, 2, 2])
    joined = torch.cat([h, e[:, group]], dim=-1)
    expected = h + branch.out(torch.nn.functional.silu(branch.hidden(joined)))
    torch.testing.assert_close(branch(h, e, group), expected)


def test_every_action_column_is_read():
    embedding = ActionEmbedding(8, (4, 4), 1.0)
    base = torch.zeros(1, 6)
    for column, value in enumerate((3.0, -5.0, -1.0, 1.0, 1.0, 1.0)):
        row = base.clone()
        row[0, column] = value
        assert not torch.equal(embedding(row), embedding(base)), column


@pytest.mark.parametrize("patch", [1, 2])
def test_patches_are_put_back_where_they_came_from(patch):
    config = replace(TINY, transformer=replace(TINY.transformer, patch=patch))
    network = World.random(config).transformer
    size = 4 * patch**2
    with torch.no_grad():
        torch.nn.init.eye_(network.patch_embedding.weight)
        torch.nn.init.zeros_(network.patch_embedding.bias)
        network.head.weight.copy_(torch.eye(*network.head.weight.shape))
    latents = torch.randn(1, 2, *config.latent_shape)
    out = network.velocity(network.embed_latents(latents), torch.zeros(1, 2, 32), config.token_grid)
    for y in range(0, 4, patch):
        for x in range(0, 4, patch):
            values = latents[..., y : y + patch, x : x + patch].permute(0, 1, 3, 4, 2).flatten(2)
            normed = layer_norm(torch.nn.functional.pad(values, (0, 32 - size)), (32,), eps=1e-6)[..., :size]
            got = out[..., y : y + patch, x : x + patch].permute(0, 1, 3, 4, 2).flatten(2)
            torch.testing.assert_close(got, normed)


def test_rotary_attention_depends_on_distance_alone():
    assert axis_sizes(128) == (44, 42, 42)
    query, key = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)
    scores = []
    for shift in (0.0, 3.0, 11.0):
        a, b = (rotary_table(torch.tensor([[t + shift, 1.0, 2.0]]), 16) for t in (5.0, 2.0))
        scores.append((rotate(query, a) * rotate(key, b)).sum())
    torch.testing.assert_close(scores[0], scores[1])
    torch.testing.assert_close(scores[0], scores[2])


def test_thinning_keeps_ends_and_spaces_by_age():
    times = torch.full((1, 8), -1)
    for now in range(2, 400, 2):
        both = torch.cat([times, torch.tensor([[now]])], dim=1)
        dropped = int(redundant_entry(both))
        times = torch.cat([both[:, :dropped], both[:, dropped + 1 :]], dim=1)
    kept = times[0].tolist()
    assert kept == sorted(set(kept)) and kept[0] == 2 and kept[-1] == 398
    gaps = [b - a for a, b in zip(kept, kept[1:], strict=False)]
    assert gaps[0] >= 3 * gaps[-2]


@pytest.mark.parametrize("mask_shape", [None, (1, 1, 6, 9), (3, 1, 6, 9), (3, 1, 1, 9)])
def test_the_training_form_of_attention_equals_the_fused_kernel(mask_shape):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(3, 2, count, 8, generator=generator) for count in (6, 9, 9))
    mask = None
    if mask_shape is not None:
        mask = torch.rand(mask_shape, generator=generator) < 0.5
        mask[..., 0] = True  # a query that sees nothing has no attention
    plain = attention(query, key, value, mask)
    assert torch.allclose(plain, scaled_dot_product_attention(query, key, value, attn_mask=mask), atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(plain, attention(query, key, value, mask), atol=1e-6)
