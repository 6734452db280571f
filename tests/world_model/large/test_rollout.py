"""Rollouts of large worlds: cost, independence of batch rows, and what a chunk may see."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from world_model.large import Expert
from world_model.large.context import History, extend_cache, remember
from world_model.large.rollout import Guidance, LargeRollout, few_step_chunk, solved_chunk
from world_model.solvers import UniPC


def scrambled(toy, few_step, seed):
    torch.manual_seed(seed)
    expert = Expert(toy, few_step).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for value in expert.parameters():
        scale = 0.3 if value.ndim < 2 else 1 / value[0].numel() ** 0.5
        value += torch.randn(value.shape, generator=generator) * scale
    return expert


@pytest.fixture(scope="module")
def experts(toy):
    return {name: scrambled(toy, False, seed) for seed, name in enumerate(("high", "low"))}


@pytest.fixture(scope="module")
def few_step_experts(toy):
    return {name: scrambled(toy, True, seed) for seed, name in enumerate(("high", "low"))}


def draw(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def history(batch, latents):
    return History(
        draw(0, batch, latents, 12, 8, 8), draw(1, batch, latents // 2, 12, 2, 2), draw(2, batch, latents, 6)
    )


def test_a_cache_that_grew_compresses_only_what_is_new(experts):
    expert, long = experts["high"], history(1, 44)
    whole, new = remember(expert, long, 1, 1), remember(expert, long, 1, 1, known_frames=20)
    count = len(new.group)
    torch.testing.assert_close(new.tokens, whole.tokens[:, -count:])
    assert torch.equal(new.positions, whole.positions[-count:]) and torch.equal(new.rank, whole.rank[-count:])
    seen = []
    handle = expert.compressor.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[1]))
    remember(expert, long, 1, 1, known_frames=20)
    handle.remove()
    assert seen == [28]  # two new frames and what they look back on


@pytest.mark.parametrize(("sink", "adjacent"), [(1, 1), (2, 3), (0, 1)])
def test_a_grown_cache_equals_one_masked_pass(experts, sink, adjacent):
    expert, long, text = experts["low"], history(2, 12), draw(3, 2, 3, 8)
    grown = None
    for count in (4, 8, 12):
        part = History(long.latents[:, :count], long.small[:, : count // 2], long.rows[:, :count])
        grown = extend_cache(expert, grown, part, text, sink, adjacent)
    at_once = extend_cache(expert, None, long, text, sink, adjacent)
    for mine, other in zip(grown.pairs, at_once.pairs, strict=True):
        torch.testing.assert_close(mine.key, other.key)
        torch.testing.assert_close(mine.value, other.value)


def roll(experts, batch, chunks, sample, **options):
    """Latents of the first ``batch`` of two rollouts."""
    condition, small = draw(4, 2, 12, 8, 8, 8)[:batch], draw(5, 2, 6, 8, 2, 2)[:batch]
    rollout = LargeRollout(experts, condition, small, **options)
    made = []
    for chunk in range(chunks):
        noise, rows, text = draw(10 + chunk, 2, 4, 4, 8, 8), draw(20 + chunk, 2, 4, 6), draw(30 + chunk, 2, 3, 8)
        latents = sample(rollout, noise[:batch], rows[:batch], text[:batch])
        rollout.commit(latents, draw(40 + chunk, 2, 2, 4, 2, 2)[:batch], rows[:batch], text[:batch])
        made.append(latents)
    return torch.cat(made, dim=1)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_rollouts_in_one_batch_do_not_touch_each_other(experts, few_step_experts, bidirectional):
    def few_step(rollout, noise, rows, text):
        return few_step_chunk(rollout, noise, rows, text, lambda: noise * 0.5)

    def solved(rollout, noise, rows, text):
        return solved_chunk(rollout, noise, rows, text, UniPC(3, 5.0))

    for sample, pair, guided in ((few_step, few_step_experts, False), (solved, experts, True)):
        both, one = (
            roll(
                pair,
                batch,
                3,
                sample,
                bidirectional=bidirectional,
                guidance=Guidance(draw(6, 2, 2, 8)[:batch], {"high": 3.5, "low": 2.0}) if guided else None,
            )
            for batch in (2, 1)
        )
        torch.testing.assert_close(both[:1], one, rtol=1e-4, atol=1e-4)


def test_a_guidance_scale_of_one_is_no_guidance(experts):
    def solved(rollout, noise, rows, text):
        return solved_chunk(rollout, noise, rows, text, UniPC(2, 5.0))

    guidance = Guidance(draw(6, 2, 2, 8), {"high": 1.0, "low": 1.0})
    plain, guided = (roll(experts, 2, 2, solved, guidance=given) for given in (None, guidance))
    torch.testing.assert_close(plain, guided, rtol=1e-4, atol=1e-4)


def test_a_bf16_expert_stays_near_its_float32_twin(experts):
    twins = {name: deepcopy(expert).bfloat16() for name, expert in experts.items()}

    def once(rollout, noise, rows, text):
        return rollout.evaluate("high", noise, 950.0, rows, text)[0]

    full, half = (roll(pair, 2, 3, once) for pair in (experts, twins))
    assert half.dtype == torch.float32 and (half - full).norm() < 0.1 * full.norm()
