"""Modules whose numbers come from a file."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from world_model.undrawn import Undrawn


def test_nothing_is_drawn_for_new_modules():
    before = torch.get_rng_state()
    with Undrawn():
        layers = [nn.Linear(3, 5), nn.Embedding(7, 2), nn.Conv2d(2, 4, 3), nn.MultiheadAttention(8, 2), torch.randn(3)]
    assert torch.equal(torch.get_rng_state(), before)
    assert [tuple(layer.weight.shape) for layer in layers[:3]] == [(5, 3), (7, 2), (4, 2, 3, 3)]
    nn.Linear(3, 5)
    assert not torch.equal(torch.get_rng_state(), before)


def test_a_world_is_loaded_without_torch_s_compiler():
    load = "import sys; from world_model.checkpoint import load_world; load_world('doom')"
    code = f"{load}; print('torch._dynamo' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"
