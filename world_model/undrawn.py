"""Modules whose numbers come from a file: nothing is drawn for them first.

Torch's meta device would do, too, but for a small world it costs more than the weights: drawing there does nothing but
import torch's whole compiler.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DRAWS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


class Undrawn(TorchFunctionMode):
    """Inside it, the random numbers of new modules are whatever was in memory, and no generator moves."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return (torch.empty if function is torch.randn else function)(*args, **kwargs)
