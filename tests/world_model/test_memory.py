"""The compressor: slot by slot equals whole, nothing of the future, and the token count of the paper."""

from __future__ import annotations

from dataclasses import replace

import torch

from world_model.config import DOOM, WorldConfig
from world_model.memory import coarse_view, slot_windows
from world_model.thinning import slot_count
from world_model.transformer.masks import teacher_forcing


def history(world, slots, batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    channels, height, width = world.config.latent_shape
    stride, shrink = world.config.memory.temporal_stride, world.config.memory.spatial_stride
    latents = torch.randn(batch, 1 + slots * stride, channels, height, width, generator=generator)
    coarse = torch.randn(batch, slots, channels, height // shrink, width // shrink, generator=generator)
    return latents, coarse


def compressed(world, latents, coarse):
    windows = slot_windows(latents, world.config.memory.temporal_stride)
    return world.compressor(windows, coarse, world.transformer)


def test_compressing_slot_by_slot_equals_the_whole_history(tiny_world):
    latents, coarse = history(tiny_world, 5)
    stride = tiny_world.config.memory.temporal_stride
    whole = compressed(tiny_world, latents, coarse)
    parts = [
        compressed(tiny_world, latents[:, stride * c : stride * (c + 1) + 1], coarse[:, c : c + 1]) for c in range(5)
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-6, rtol=1e-5)


def test_no_slot_sees_a_later_latent(tiny_world):
    latents, coarse = history(tiny_world, 5)
    stride = tiny_world.config.memory.temporal_stride
    before = compressed(tiny_world, latents, coarse).unflatten(1, (5, -1))
    latents[:, stride * 3 + 1 :] += 1
    coarse[:, 3:] += 1
    after = compressed(tiny_world, latents, coarse).unflatten(1, (5, -1))
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3], after[:, 3])


def test_both_branches_carry_the_history(tiny_world):
    latents, coarse = history(tiny_world, 2)
    tokens = compressed(tiny_world, latents, coarse)
    assert not torch.equal(tokens, compressed(tiny_world, latents + 1, coarse))
    assert not torch.equal(tokens, compressed(tiny_world, latents, coarse + 1))


def test_memory_shrinks_the_history_as_the_paper_says():
    """l = 2 and s = 4 give 32 times fewer tokens; the bundled world's s = 2 gives 8 times."""
    video = replace(DOOM.video, height=128, width=128)
    for shrink, factor in ((2, 8), (4, 32)):
        config = WorldConfig(video=video, memory=replace(DOOM.memory, spatial_stride=shrink))
        rows, columns = config.token_grid
        small_rows, small_columns = config.memory_grid
        assert config.memory.temporal_stride * rows * columns == factor * small_rows * small_columns


def test_the_coarse_view_keeps_the_last_frame_of_a_slot(tiny_world):
    frames = torch.randn(1, 2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    other = frames.clone()
    other[:, 0] += 1
    first, second = (coarse_view(video, tiny_world.config, tiny_world.codec) for video in (frames, other))
    assert first.shape == (1, 4, 2, 2)
    assert torch.equal(first, second)


def test_training_masks_hold_for_every_kind_of_token(tiny_world):
    layout = teacher_forcing(tiny_world.config, 9, 0)
    kinds = "S" + "C" * len(layout.slots) + "T" * len(layout.adjacent) + "N" * len(layout.targets)
    first = {kind: kinds.index(kind) for kind in "SCTN"}
    token = [int((layout.group == g).nonzero()[0]) for g in range(len(kinds))]

    def sees(query, key):
        return bool(layout.mask[token[query], token[key]])

    for g, kind in enumerate(kinds):
        assert sees(g, g)
        for other in range(first["N"], len(kinds)):
            assert sees(g, other) == (g == other)
        if kind == "C":
            assert sees(g, first["S"]) and not any(sees(g, k) for k in range(g + 1, len(kinds)))
        if kind == "N":
            latent = int(layout.latent[g])
            complete = slot_count(latent, tiny_world.config.memory.temporal_stride)
            assert sum(sees(g, k) for k in range(first["C"], first["T"])) == complete
            seen = [int(layout.latent[k]) for k in range(first["T"], first["N"]) if sees(g, k)]
            assert seen == [j for j in (latent - 2, latent - 1) if j >= 1]
    assert layout.mask.any(dim=1).all()
