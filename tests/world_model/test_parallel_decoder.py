"""Interval heads: one layer for any stretch of them, and at first nothing but an Euler solver."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.checkpoint import load_world, save_world
from world_model.config import TINY
from world_model.flow import sampling_levels
from world_model.parallel_decoder import ParallelDecoder, fused_heads

BLOCKS = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)
UNEQUAL = (2, 2, 3, 1)


def with_flow(blocks, **flow):
    return replace(TINY, flow=replace(TINY.flow, blocks=blocks, sampling_steps=max(1, len(blocks)), **flow))


def random_decoder(blocks, seed):
    decoder = ParallelDecoder(with_flow(blocks))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for heads in decoder.parameters():
            heads.copy_(torch.randn(heads.shape, generator=generator))
    features = torch.randn(2, 3, 4, TINY.transformer.width, generator=generator)
    return decoder, features


def one_after_the_other(decoder, features, start, end):
    """What the heads of intervals ``[start, end)`` add to latents, each by itself, in float64."""
    levels = sampling_levels(sum(decoder.blocks), decoder.shift).double()
    moved = torch.zeros(*features.shape[:-1], decoder.bias.shape[1], dtype=torch.float64)
    for k in range(start, end):
        velocity = features.double() @ decoder.weight[k].double().T + decoder.bias[k].double()
        moved = moved + (levels[k + 1] - levels[k]) * velocity
    return moved


@settings(max_examples=30, deadline=None)
@given(blocks=BLOCKS, seed=st.integers(0, 99), data=st.data())
@torch.no_grad()
def test_a_stretch_of_heads_is_one_layer(blocks, seed, data):
    decoder, features = random_decoder(blocks, seed)
    start = data.draw(st.integers(0, sum(blocks) - 1))
    end = data.draw(st.integers(start + 1, sum(blocks)))
    weight, bias = decoder.block(start, end)
    displacement, endpoint = (features @ weight.T + bias).chunk(2, dim=-1)
    expected = one_after_the_other(decoder, features, start, end - 1).float()
    torch.testing.assert_close(displacement, expected, atol=1e-4, rtol=1e-4)
    last = features @ decoder.weight[end - 1].T + decoder.bias[end - 1]
    torch.testing.assert_close(endpoint, last, atol=1e-4, rtol=1e-4)

    places = torch.full(features.shape[:2], start), torch.full(features.shape[:2], end - 1)
    torch.testing.assert_close(decoder.displacement(features, *places), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(decoder.velocity(features, places[1]), last, atol=1e-4, rtol=1e-4)


@settings(max_examples=30, deadline=None)
@given(blocks=BLOCKS, seed=st.integers(0, 99))
@torch.no_grad()
def test_fused_heads_go_as_far_as_those_that_they_are_made_of(blocks, seed):
    decoder, features = random_decoder(blocks, seed)
    fused = ParallelDecoder(with_flow(blocks, fused=True))
    fused.load_state_dict(fused_heads(decoder))
    bounds = [0, *accumulate(blocks)]
    assert torch.equal(fused.levels, decoder.levels[torch.tensor(bounds)])
    for block, (start, end) in enumerate(pairwise(bounds)):
        place = torch.full(features.shape[:2], block)
        expected = one_after_the_other(decoder, features, start, end).float()
        torch.testing.assert_close(fused.displacement(features, place, place + 1), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_every_latent_has_a_stretch_of_its_own():
    decoder, features = random_decoder(UNEQUAL, 0)
    start, end = torch.tensor([[0, 2, 4], [4, 7, 0]]), torch.tensor([[1, 2, 7], [6, 8, 8]])
    together = decoder.displacement(features, start, end)
    velocities = decoder.velocity(features, start)
    for row in range(2):
        for latent in range(3):
            own = features[row : row + 1, latent : latent + 1]
            alone = one_after_the_other(decoder, own, int(start[row, latent]), int(end[row, latent]))
            torch.testing.assert_close(together[row, latent], alone[0, 0].float(), atol=1e-4, rtol=1e-4)
            head = decoder.weight[start[row, latent]], decoder.bias[start[row, latent]]
            torch.testing.assert_close(velocities[row, latent], own[0, 0] @ head[0].T + head[1], atol=1e-4, rtol=1e-4)


def test_evaluations_merge_whole_blocks():
    decoder = ParallelDecoder(with_flow(UNEQUAL))
    assert [decoder.bounds(n) for n in (1, 2, 4)] == [[0, 8], [0, 4, 8], [0, 2, 4, 7, 8]]
    fused = ParallelDecoder(with_flow(UNEQUAL, fused=True))
    assert [fused.bounds(n) for n in (1, 2, 4)] == [[0, 4], [0, 2, 4], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("evaluations", [0, 3, 5, 8])
def test_another_number_of_evaluations_is_refused(distil, tiny_world, evaluations):
    world = distil(tiny_world, UNEQUAL)
    for kind in (world, world.fused()):
        with pytest.raises(ValueError, match="choose one of 1, 2, 4" if evaluations else "at least 1"):
            kind.stream(1, sampling_steps=evaluations)


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ({"blocks": (2, 0, 1)}, r"flow.blocks is \(2, 0, 1\); give whole numbers of intervals, at least 1 each"),
        ({"blocks": (2.5, 1)}, "flow.blocks is"),
        ({"blocks": (2, 2, 2), "sampling_steps": 2}, "sampling_steps is 2, which does not divide the 3 blocks"),
        ({"blocks": (2, 2), "sampling_steps": 0}, "sampling_steps is 0; a chunk needs at least 1 evaluation"),
    ],
)
def test_blocks_that_cannot_work_are_refused(flow, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, flow=replace(TINY.flow, **flow))


@pytest.mark.parametrize("name", ["tiny_world", "chunked_world"])
@pytest.mark.parametrize(("blocks", "counts"), [((8, 8, 8, 8), (1, 2, 4)), (UNEQUAL, (1, 2, 4)), ((3, 4, 1), (1, 3))])
def test_new_heads_are_euler_steps_with_the_velocity_of_their_beginning(name, blocks, counts, request, begin, roll):
    """From one evaluation to one for each block, whether the teacher takes all steps of the fine grid with a velocity
    that it holds, or one big step for them."""
    teacher = request.getfixturevalue(name)
    student = teacher.with_blocks(blocks)
    fine = sampling_levels(sum(blocks), teacher.config.flow.shift).tolist()
    for count in counts:
        ends = list(accumulate(blocks))[len(blocks) // count - 1 :: len(blocks) // count]
        coarse = [fine[k] for k in (0, *ends)]

        def many_steps(evaluation, x, displacement, velocity, fresh, coarse=coarse):
            assert not displacement.any()
            here = fine.index(evaluation.level)
            for a, b in pairwise(fine[here : fine.index(coarse[coarse.index(evaluation.level) + 1]) + 1]):
                x = x + (b - a) * velocity
            return x

        held, plain = begin(teacher, sampling_steps=count, sampler=many_steps), begin(teacher, sampling_steps=count)
        for stream in (held, plain):
            steps = zip(stream.evaluations, pairwise(coarse), strict=True)
            stream.evaluations = [replace(e, level=a, last=a, following=b) for e, (a, b) in steps]
        got = roll(begin(student, sampling_steps=count), 2)
        for oracle in (held, plain):
            torch.testing.assert_close(got, roll(oracle, 2), atol=2e-4, rtol=1e-3)


def test_equal_blocks_are_the_euler_solver_of_as_many_steps(tiny_world, begin, roll):
    student = tiny_world.with_blocks((4, 4, 4, 4))
    for count in (1, 2, 4):
        euler = roll(begin(tiny_world, sampling_steps=count))
        torch.testing.assert_close(roll(begin(student, sampling_steps=count)), euler, atol=2e-4, rtol=1e-3)


def test_without_its_heads_a_world_is_its_own_teacher_again(tiny_world, distil, begin, roll):
    student = distil(tiny_world)
    again = student.with_blocks(()).requires_grad_(False)  # with gradients torch's kernels round differently
    assert torch.equal(roll(begin(again)), roll(begin(tiny_world)))
    assert not torch.allclose(roll(begin(student)), roll(begin(tiny_world)), atol=1e-2)
    assert again.config == tiny_world.config
    assert student.transformer.head.weight.data_ptr() == tiny_world.transformer.head.weight.data_ptr()


@pytest.mark.parametrize("name", ["tiny_world", "chunked_world"])
def test_a_fused_world_shows_the_same(name, request, distil, begin, roll):
    world = distil(request.getfixturevalue(name))
    fused = world.fused()
    assert fused.parallel_decoder.weight.shape[0] == 4
    for count in (1, 2, 4):
        whole, small = (begin(kind, sampling_steps=count) for kind in (world, fused))
        torch.testing.assert_close(roll(small, 2), roll(whole, 2), atol=2e-4, rtol=1e-3)


def test_a_world_that_was_not_distilled_has_nothing_to_fuse(tiny_world):
    with pytest.raises(ValueError, match="'tiny' has no parallel decoder to fuse; distil it first"):
        tiny_world.fused()


@pytest.mark.parametrize("fused", [False, True])
def test_a_distilled_world_comes_back_from_disk(tiny_world, distil, begin, roll, tmp_path, fused):
    world = distil(tiny_world)
    world = world.fused() if fused else world
    save_world(world, tmp_path, torch.float32)
    again = load_world(tmp_path)
    assert again.config == world.config and again.config.flow.fused == fused
    assert all(torch.equal(value, world.state_dict()[name]) for name, value in again.state_dict().items())
    torch.testing.assert_close(roll(begin(again)), roll(begin(world)), atol=2e-4, rtol=1e-3)
