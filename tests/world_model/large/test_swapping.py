"""Two experts on a card for one: who is where, how often they move, and that moving changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from world_model.controls import StructuredCaption
from world_model.large.folder import LargeWorld
from world_model.large.int8 import assign_int8
from world_model.large.swapping import SwappedExperts
from world_model.large.world import LoadedWorld


@pytest.fixture(params=["plain", "int8"])
def experts(request, toy, lively_experts):
    pair = lively_experts(LargeWorld(toy, "fast"))
    if request.param == "int8":
        for expert in pair.values():
            for name, value in list(expert.state_dict().items()):
                assign_int8(expert, name, value)
    return pair


def places(expert):
    return {value.device.type for value in (*expert.parameters(), *expert.buffers())}


def test_only_the_expert_asked_for_is_on_the_device_and_it_comes_back_whole(experts):
    before = {name: {k: v.clone() for k, v in expert.state_dict().items()} for name, expert in experts.items()}
    swapped = SwappedExperts(experts, "meta")  # a device that holds no numbers: they must come from home again
    assert places(experts["high"]) == places(experts["low"]) == {"cpu"}
    for name, other in (("high", "low"), ("low", "high"), ("low", "high"), ("high", "low")):
        assert places(swapped[name]) == {"meta"} and places(experts[other]) == {"cpu"}
        assert all(torch.equal(value, before[other][key]) for key, value in experts[other].state_dict().items())
    assert swapped.moves == 3 and list(swapped) == ["high", "low"] and len(swapped) == 2
    swapped["low"]
    assert list(swapped) == ["low", "high"]  # the one that is there comes first


def test_a_chunk_costs_two_moves_and_looks_the_same(toy, experts, blocks):
    def play(pair):
        world = LoadedWorld(LargeWorld(toy, "fast"), pair, blocks, lambda text: torch.ones(2, 8))
        stream = world.stream(1)
        stream.reset([0], [np.full((1, 64, 64, 3), 90, np.uint8)], [StructuredCaption("a hall")], [0])
        moves, frames = [], []
        for _ in range(3):
            frames.append(stream.step(torch.ones(1, 4, 6)))
            moves.append(getattr(pair, "moves", 0))
        return frames, np.diff(moves)

    plain, _ = play(experts)
    swapped, moves = play(SwappedExperts(experts, "cpu"))
    assert all(torch.equal(a, b) for a, b in zip(plain, swapped, strict=True))
    assert moves.tolist() == [2, 2]  # high to low for the last evaluations, and back for its memory
