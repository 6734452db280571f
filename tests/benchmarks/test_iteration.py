"""What autograd holds is counted once, without the weights, and only as long as it is held."""

import torch
from torch import nn

from benchmarks.iteration import HeldMemory, Stopwatch


def inputs(rows: int) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(0))


def test_held_memory_is_what_autograd_keeps_once_each_and_without_the_weights():
    layer = nn.Linear(8, 4, bias=False)
    with HeldMemory(layer) as held:
        hidden = layer(inputs(3))  # keeps its input (3 x 8) and the weight, which is known
        loss = (hidden * hidden[:, :]).sum()  # keeps the result (3 x 4), twice
        assert held.bytes == held.peak == 4 * (3 * 8 + 3 * 4)
    layer(inputs(3)).sum().backward()
    assert held.peak == 4 * (3 * 8 + 3 * 4)
    loss.backward()
    assert held.bytes == 0 and held.peak == 4 * (3 * 8 + 3 * 4)
    assert layer.weight.grad is not None


def test_graphs_that_are_alive_one_after_the_other_hold_as_much_as_one():
    layer = nn.Linear(8, 4, bias=False)
    with HeldMemory(layer) as one_by_one:
        for _ in range(5):
            layer(inputs(3)).sum().backward()
    with HeldMemory(layer) as together:
        sum(layer(inputs(3)).sum() for _ in range(5)).backward()
    assert one_by_one.peak == 4 * 3 * 8 and together.peak == 5 * one_by_one.peak


def test_a_lap_has_the_peak_of_its_own_part():
    layer = nn.Linear(8, 4, bias=False)
    with Stopwatch(layer, torch.device("cpu")) as stopwatch:
        layer(inputs(30)).sum().backward()
        first = stopwatch.lap()
        loss = layer(inputs(3)).sum()
        second = stopwatch.lap()
        loss.backward()
        third, fourth = stopwatch.lap(), stopwatch.lap()
    assert [lap.held for lap in (first, second, third, fourth)] == [4 * 30 * 8, 4 * 3 * 8, 4 * 3 * 8, 0]
    assert min(lap.seconds for lap in (first, second, third, fourth)) > 0 and first.peak == 0
