"""The memory plan against bytes that a CPU's allocator handed out, and against a real rollout's cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from world_model.config import VideoConfig
from world_model.large import LargeConfig, plan
from world_model.large.context import History, extend_cache
from world_model.large.rollout import LargeRollout, few_step_chunk


@pytest.fixture(scope="module")
def small(toy) -> LargeConfig:
    """Larger than the toy world, so that what does not grow with the tokens is little."""
    sizes = replace(toy.world.transformer, width=96, ffn_width=256, depth=3)
    return replace(toy, world=replace(toy.world, transformer=sizes, video=VideoConfig(height=128, width=192)))


def real(config, few_step=False):
    """`plan.on_meta`, with numbers."""
    return plan.on_meta(config, few_step).to_empty(device="cpu")


def test_a_rollout_s_activations_and_cache_are_those_measured(small, allocated, tolerance):
    experts = {name: real(small, few_step=True).requires_grad_(False) for name in ("high", "low")}
    latents, batch, chunk = 12, 2, 4
    channels, height, width = small.world.latent_shape
    condition = torch.zeros(batch, latents, 8, height, width)
    small_condition = torch.zeros(batch, latents // 2, 8, height // 4, width // 4)
    rollout = LargeRollout(experts, condition, small_condition)
    noise, rows = torch.zeros(batch, chunk, channels, height, width), torch.zeros(batch, chunk, 6)
    text = torch.zeros(batch, 4, 8)
    for _ in range(latents // chunk - 1):
        few_step_chunk(rollout, noise, rows, text, lambda: noise)
        rollout.commit(noise, torch.zeros(batch, 2, channels, height // 4, width // 4), rows, text)
    for name in experts:
        rollout.evaluate(name, noise, 500.0, rows, text, 0)
    kept = [pair for cache in rollout.caches.values() for pair in cache.pairs]
    contexts = [pair for context in rollout._contexts.values() for pair in context]
    found = plan.plan_rollout(small, latents, batch=batch)
    tokens = contexts[0].key.shape[2]
    assert found.tokens == tokens
    both = sum(pair.key.untyped_storage().nbytes() for pair in (*kept, *contexts))  # key and value share one storage
    assert by_name(found)["key-value cache"].bytes == both

    measured = allocated(lambda: rollout.evaluate("high", noise, 500.0, rows, text, 0))
    meta = plan.on_meta(small, few_step=True)
    context = plan.key_values(meta, batch, tokens)
    with torch.no_grad(), plan.FusedAttention(), plan.Peak() as denoising:
        plan.denoise_chunk(meta, latents, batch, context)
    assert denoising.bytes == pytest.approx(measured, rel=tolerance)

    past = rollout.history
    shorter = History(past.latents[:, :-chunk], past.small[:, : -chunk // 2], past.rows[:, :-chunk])
    with torch.no_grad():
        cache = extend_cache(experts["low"], None, shorter, text, 1, 1)
        measured = allocated(lambda: extend_cache(experts["low"], cache, past, text, 1, 1))
        with plan.FusedAttention(), plan.Peak() as growing:
            plan.grow_cache(meta, latents - chunk, batch)
    assert growing.bytes == pytest.approx(measured, rel=tolerance)
    assert by_name(found)["activations"].bytes == max(denoising.bytes, growing.bytes)


def test_parameters_of_the_companions_are_those_of_their_modules():
    pytest.importorskip("diffusers")
    pytest.importorskip("transformers")
    from diffusers import AutoencoderKLWan
    from transformers import UMT5EncoderModel

    from world_model.text import umt5

    with torch.device("meta"):
        old, encoder = AutoencoderKLWan(), UMT5EncoderModel(umt5.configuration())
        new = AutoencoderKLWan(
            base_dim=160,
            decoder_base_dim=256,
            z_dim=48,
            is_residual=True,
            in_channels=12,
            out_channels=12,
            patch_size=2,
            scale_factor_spatial=16,
            latents_mean=[0.0] * 48,
            latents_std=[1.0] * 48,
        )
    old, new, encoder = (sum(value.numel() for value in module.parameters()) for module in (old, new, encoder))
    assert plan.CODECS == {8: old, 16: new} and encoder == plan.CAPTION_ENCODER


@pytest.mark.parametrize(("frames", "near"), [(1, "13 or 29"), (81, "77 or 93"), (76, "61 or 77"), (12, "13 or 29")])
def test_frames_that_are_no_whole_chunks_are_answered_with_some_that_are(frames, near):
    with pytest.raises(ValueError, match=near):
        plan.latents_of(plan.PRESETS["worldplay2-14b"], frames)
    assert plan.latents_of(plan.PRESETS["worldplay2-14b"], 77) == 20


def by_name(found: plan.Plan) -> dict[str, plan.Item]:
    return {item.what: item for item in found.items}


def test_an_operation_that_was_followed_before_makes_the_same_again():
    x, y = torch.ones(2, 3, dtype=torch.int64, device="meta"), torch.ones(4, 6, device="meta")
    with plan.Peak():
        kinds = [(x * factor).dtype for factor in (2, 2.0, True, 2, 2.0, True)]
        means = [torch.var_mean(y, dim=1) for _ in range(2)]
        parts = [torch.split_with_sizes_copy(y, [1, 5], 1) for _ in range(2)]
    assert kinds == [torch.int64, torch.float32, torch.int64] * 2
    assert all(isinstance(pair, tuple) and [x.shape for x in pair] == [(4,), (4,)] for pair in means)
    assert [[x.shape for x in pair] for pair in parts] == [[(4, 1), (4, 5)]] * 2


def test_views_are_no_memory_and_what_died_is_not_counted():
    x = torch.ones(8, 16, device="meta")
    with plan.Peak() as peak:
        views = x.view(16, 8).T[2:], x.detach()
        assert peak.bytes == 0
        made = views[0] * 2
        assert peak.bytes == peak.alive == made.nbytes
        del made
        assert (x.clone().nbytes, peak.alive) == (x.nbytes, 0)
    assert peak.bytes == x.nbytes
