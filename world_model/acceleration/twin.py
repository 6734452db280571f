"""Modules of their own around the same numbers: what is changed in them leaves the first ones as they are."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def twin(module: Module) -> Module:
    """A copy of a module, without gradients, whose parameters and buffers take no memory of their own."""
    own = {id(value): nn.Parameter(value.detach(), requires_grad=False) for value in module.parameters()}
    own |= {id(value): value.detach() for value in module.buffers()}
    return copy.deepcopy(module, own)
