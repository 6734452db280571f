"""One run in several processes, as `accelerate launch` or `torchrun` starts them, on one machine or many.

Every process draws the whole batch of a step and learns from its share of the rows (`Stage.share`), the gradients are
averaged, and all take the same step: so many processes do what one does, on a batch of the same size. The run folder
has to be where all of them see it; the first process writes it. In a single process nothing here does anything.
Each holds all weights, unless the launcher was asked to split them (`sharding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

import torch
from accelerate import PartialState
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

PATIENCE = timedelta(hours=12)  # the others wait while the first one encodes the recordings
BUCKET = 2**25  # numbers that are sent at once; one copy of them is made


def joined(device: str | None) -> PartialState:
    """The processes of this run, on the CPU or, for any other ``device``, on the best there is."""
    return PartialState(cpu=device == "cpu", timeout=PATIENCE)


def count() -> int:
    """How many processes take part."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return count() == 1 or distributed.get_rank() == 0


def average(tensors: Iterable[Tensor]) -> None:
    """Replace tensors, in place, by their means over all processes, which have tensors of the same sizes."""
    if count() > 1:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            distributed.all_reduce(flat)
            flat /= count()
            for tensor, mean in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(mean.view_as(tensor))


def average_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Average gradients; those of sharded parameters are averaged already, by the backward pass."""
    average(p.grad for p in parameters if p.grad is not None and not isinstance(p.grad, DTensor))


def mean_of(values: dict[str, Tensor | float], device: torch.device) -> dict[str, float]:
    """The means of single numbers, which all processes have under the same names."""
    if count() == 1:
        return {name: float(value) for name, value in values.items()}
    means = torch.tensor([float(value) for value in values.values()], dtype=torch.float64, device=device)
    average([means])
    return dict(zip(values, means.tolist(), strict=True))


def largest_of(values: list[float], device: torch.device) -> list[float]:
    """The largest of each number in any process: what all of them go by."""
    if count() == 1:
        return values
    largest = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    return largest.tolist()


def rows_of_all(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of the whole batch."""
    if count() == 1:
        return rows
    parts = [torch.empty_like(rows) for _ in range(count())]
    distributed.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def own_rows(rows: Tensor) -> Tensor:
    """Of the rows of all processes those of this one."""
    return rows if count() == 1 else rows.chunk(count())[distributed.get_rank()]


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and size + tensor.numel() > BUCKET:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.numel()
    if bucket:
        yield bucket
