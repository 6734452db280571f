"""Two experts for a card that holds one: the other waits in the computer's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from world_model.large.expert import Expert


class SwappedExperts(Mapping[str, Expert]):
    """Experts of which only the one that was asked for last is on ``device``.

    They come on the CPU and keep their numbers there (pinned, where the device is a CUDA one), so that one leaves the
    device without being copied. Iterating begins with the expert that is on the device: going through all of them costs
    one change less.
    """

    def __init__(self, experts: Mapping[str, Expert], device: str | torch.device) -> None:
        self.device = torch.device(device)
        self.moves = 0  # how often an expert came to the device
        self._experts = dict(experts)
        self._home = {name: _tensors(expert) for name, expert in experts.items()}
        if self.device.type == "cuda":
            self._home = {name: {k: v.pin_memory() for k, v in own.items()} for name, own in self._home.items()}
        self._present: str | None = None

    def __getitem__(self, name: str) -> Expert:
        expert = self._experts[name]
        if name != self._present:
            if self._present is not None:  # first make room
                _put(self._experts[self._present], self._home[self._present])
            self._present = None
            _put(expert, {key: value.to(self.device, copy=True) for key, value in self._home[name].items()})
            self._present = name
            self.moves += 1
        return expert

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._experts, key=lambda name: name != self._present))

    def __len__(self) -> int:
        return len(self._experts)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name."""
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


def _put(module: nn.Module, values: dict[str, Tensor]) -> None:
    """Give a module's parameters and buffers these numbers, wherever they are."""
    for name, value in values.items():
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        if leaf in owner._buffers:
            owner._buffers[leaf] = value
        else:
            setattr(owner, leaf, nn.Parameter(value, requires_grad=False))
