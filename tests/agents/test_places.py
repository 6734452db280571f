"""Where agents are: the world calculates in what it is told to."""

from __future__ import annotations

import pytest
import torch

from agents.places import make_env, quickest_dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_world_calculates_in_the_dtype_that_it_is_told(folder, dtype):
    env = make_env("world", 1, task="explore", world=str(folder), dtype=dtype)
    parameters = env.episodes.handle.get().transformer.parameters()
    assert next(parameters).dtype == getattr(torch, dtype)
    env.close()


def test_another_place_is_refused():
    with pytest.raises(ValueError, match="the place is 'moon'; choose one of world, game"):
        make_env("moon", 1, task="explore")


@pytest.mark.parametrize(
    ("abilities", "dtype"),
    [
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True, "avx512_bf16": False}, "bfloat16"),
        ({"avx2": True, "avx512_bf16": False}, "float32"),
        ({}, "float32"),
    ],
)
def test_the_quickest_dtype_is_that_of_the_processor(monkeypatch, abilities, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities, raising=False)
    assert quickest_dtype() == dtype


def test_a_torch_that_does_not_tell_is_taken_at_its_slowest(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert quickest_dtype() == "float32"
