"""Weights of 8 bits from the start: the linear layers of the blocks, which hold nearly all of a large world, at half of
bf16's size.

They are rounded as they are read, one after the other, so that no second copy is ever in memory.
"""

from __future__ import annotations

from torch import Tensor, nn

from world_model.acceleration.quantised import Int8Linear
from world_model.large.tensor_files import assign


def assign_int8(expert: nn.Module, name: str, value: Tensor) -> None:
    """`tensor_files.assign`, but weights of the blocks' linear layers become `Int8Linear`."""
    path, _, leaf = name.rpartition(".")
    layer = expert.get_submodule(path)
    if leaf == "weight" and isinstance(layer, nn.Linear) and ".blocks." in path:
        owner, _, place = path.rpartition(".")
        setattr(expert.get_submodule(owner), place, Int8Linear(value, layer.bias))
    else:
        assign(expert, name, value)
