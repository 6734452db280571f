"""From one network evaluation to the next: how many there are, and which noise they use."""

from __future__ import annotations

import pytest
import torch

from world_model.sampling import block_euler, evaluations_of, renoised


@pytest.fixture(params=["teacher", "distilled", "fused"])
def world(request, tiny_world, distil):
    distilled = distil(tiny_world)
    return {"teacher": tiny_world, "distilled": distilled, "fused": distilled.fused()}[request.param]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("sampler", [block_euler, renoised])
def test_a_step_runs_the_network_once_for_each_evaluation_and_once_to_remember(world, count, sampler, begin, roll):
    stream = begin(world, sampling_steps=count, sampler=sampler)
    runs = []
    handle = world.transformer.register_forward_hook(lambda *_: runs.append(1))
    roll(stream, 3)
    handle.remove()
    assert len(runs) == 3 * (count + 1)


def test_evaluations_walk_from_noise_to_data(world):
    for count in (1, 2, 4):
        evaluations = evaluations_of(world, count)
        assert evaluations[0].level == 1 and evaluations[-1].following == 0 and len(evaluations) == count
        for one, two in zip(evaluations, evaluations[1:], strict=False):
            assert one.level >= one.last > one.following == two.level
    assert len(evaluations_of(world)) == world.config.flow.sampling_steps
    for wrong in (0, "2", 2.5, True):
        with pytest.raises(ValueError, match=f"sampling_steps is {wrong!r}; give a whole number"):
            evaluations_of(world, wrong)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(("sampler", "draws"), [(block_euler, lambda count: 1), (renoised, lambda count: count)])
def test_a_slot_draws_the_noise_that_it_needs_from_its_own_generator(world, count, sampler, draws, begin, roll):
    stream = begin(world, sampling_steps=count, sampler=sampler)
    twins = [torch.Generator().manual_seed(slot) for slot in range(2)]
    roll(stream, 3)
    for generator, twin in zip(stream._generators, twins, strict=True):
        for _ in range(3 * draws(count)):
            torch.randn(1, *world.config.latent_shape, generator=twin)
        assert torch.equal(generator.get_state(), twin.get_state())


def test_the_samplers_go_on_as_they_say(world):
    evaluations = evaluations_of(world, 2)
    generator = torch.Generator().manual_seed(0)
    x, displacement, endpoint, noise = torch.randn(4, 1, 2, 4, 4, 4, generator=generator)
    for evaluation in evaluations:
        arrived = x + displacement  # at the last interval
        clean = arrived - evaluation.last * endpoint
        level = evaluation.following
        on = block_euler(evaluation, x, displacement, endpoint, lambda: pytest.fail("drew noise"))
        torch.testing.assert_close(on, arrived + (level - evaluation.last) * endpoint)
        again = renoised(evaluation, x, displacement, endpoint, lambda: noise)
        torch.testing.assert_close(again, (1 - level) * clean + level * noise)
    final = renoised(evaluations[-1], x, displacement, endpoint, lambda: pytest.fail("drew noise"))
    assert torch.equal(final, evaluations[-1].clean(x, displacement, endpoint))
    torch.testing.assert_close(final, block_euler(evaluations[-1], x, displacement, endpoint, lambda: noise))


def test_one_evaluation_leaves_nothing_to_renoise_and_more_do(world, begin, roll):
    for count, same in ((1, True), (2, False)):
        one, two = (roll(begin(world, sampling_steps=count, sampler=kind)) for kind in (block_euler, renoised))
        assert torch.allclose(one, two, atol=1e-4) == same


def test_renoised_slots_do_not_depend_on_each_other(world, begin, roll):
    calm, busy = (begin(world, 3, sampler=renoised) for _ in range(2))
    busy._generators[1].manual_seed(99)
    calm, busy = roll(calm), roll(busy)
    assert torch.equal(calm[:, [0, 2]], busy[:, [0, 2]]) and not torch.equal(calm[:, 1], busy[:, 1])
