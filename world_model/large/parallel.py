"""One large world in several processes, each on a GPU of its own with a part of every block (tensor parallelism).

    torchrun --standalone --nproc-per-node 8 -m wp2env.cli generate --world worlds/fast --input-json examples.json

A process has some heads of every attention, with the keys and values of these alone, and some hidden units of the
feed-forward and of the action residual. What the processes make of them is added up four times a block (as in
Megatron-LM, arXiv:1909.08053, Sec. 3); queries and keys are normalised over all heads, so the sums of their squares are
added up, too. The rest is whole in every process: embeddings, heads, compressor, codec, caption encoder. All run the
same program with the same controls and noise, and all have the same frames.

Layers stay plain ones, with smaller weights: as torch's `DTensor` (`parallelize_module`) they could not have 8 bits,
take turns on the device, or be read in halves as `ActionResidual` does. Torch's context parallelism does not fit, which
shares out queries and keys of one length without a mask; here a short chunk sees a long cache. There is no backward
pass.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.utils._pytree import tree_map_only

from world_model.controls import StructuredCaption
from world_model.large.config import LargeConfig
from world_model.large.expert import Expert
from world_model.large.stream import LargeStream
from world_model.large.tensor_files import TensorFiles, assign
from world_model.transformer.block import QueryKeyNorm

# Tensors of an expert, by their names.
OUTPUTS = r"transformer\.blocks\.\d+\.(\w+_attention\.(q|k|v|norm_q|norm_k)|action\.hidden|ffn\.0)\.(weight|bias)"
INPUTS = r"transformer\.blocks\.\d+\.(\w+_attention\.o|action\.out|ffn\.2)\.weight"  # of layers that are added up
ADDED = INPUTS.replace("weight", "bias")
JOINS = count()  # numbers the times that this program joined others


def split_axis(name: str) -> int | None:
    """The axis along which an expert's tensor is split, None if it is whole in every process."""
    return 0 if re.fullmatch(OUTPUTS, name) else 1 if re.fullmatch(INPUTS, name) else None


@dataclass(frozen=True)
class Share:
    """What one process holds: part ``index`` of ``count`` equal ones."""

    index: int = 0
    count: int = 1

    def read(self, source: TensorFiles, name: str) -> Tensor:
        """This share of an expert's tensor; the others' are not read."""
        if self.count == 1 or split_axis(name) is None:
            return self._once(name, source[name])
        return source.part(name, self._place(name, source.shapes[name]))

    def of(self, name: str, whole: Tensor) -> Tensor:
        """This share of an expert's tensor, a view."""
        return self._once(name, whole[self._place(name, tuple(whole.shape))])

    def _place(self, name: str, shape: tuple[int, ...]) -> tuple[slice, ...]:
        place, axis = [slice(None)] * len(shape), split_axis(name)
        if axis is not None:
            size = shape[axis] // self.count
            place[axis] = slice(self.index * size, (self.index + 1) * size)
        return tuple(place)

    def _once(self, name: str, value: Tensor) -> Tensor:
        """Zeros for biases that another process adds."""
        return torch.zeros_like(value) if self.index and re.fullmatch(ADDED, name) else value


ALONE = Share()


@contextmanager
def joined(device: str) -> Iterator[Share]:
    """Join the processes that `torchrun` started, each on the GPU of its local rank where ``device`` is "cuda"; gives
    this one's share, `ALONE` in a program that was started by itself.

    Raises:
        ValueError: when a process has no GPU of its own.
    """
    if not (distributed.is_available() and distributed.is_torchelastic_launched()):
        yield ALONE
        return
    on_gpu = device.startswith("cuda")
    if on_gpu:
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if device != "cuda":
            raise ValueError(f"the device is {device!r} for all processes; give 'cuda', and each takes its own GPU")
        if local >= gpus:
            raise ValueError(f"process {local + 1} of this machine has none of its {gpus} GPUs; start {gpus} at most")
        torch.cuda.set_device(local)
    own = not distributed.is_initialized()
    if own:
        store, rank, processes = next(distributed.rendezvous("env://"))
        # Under names of its own: those of a group that was left are still there, and who is early would call on them.
        store = distributed.PrefixStore(f"joined {next(JOINS)}", store)
        distributed.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=processes)
    yield Share(distributed.get_rank(), distributed.get_world_size())
    if own:  # after an error the others are left to `torchrun`, which ends them
        distributed.destroy_process_group()


def check_split(config: LargeConfig, count: int) -> None:
    """Refuse a number of processes that the blocks cannot be split among.

    Raises:
        ValueError: naming the numbers that fit.
    """
    sizes = config.world.transformer
    common = gcd(sizes.heads, sizes.ffn_width)
    if common % count:
        fitting = ", ".join(str(number) for number in range(1, common + 1) if common % number == 0)
        raise ValueError(
            f"{config.world.name} does not split among {count} processes, on one GPU each: its {sizes.heads} heads and "
            f"the {sizes.ffn_width} hidden units of its feed-forward must divide by their number; take one of {fitting}"
        )


def split(expert: Expert, share: Share) -> Expert:
    """Reduce a whole expert to one share of it."""
    for name, value in expert.state_dict().items():
        assign(expert, name, share.of(name, value))
    return connect(expert, share)


def connect(expert: Expert, share: Share) -> Expert:
    """Make an expert that has one share of every tensor add up what it makes of it with what the others make."""
    if share.count == 1:
        return expert
    for block in expert.transformer.blocks:
        for attention in (block.self_attention, block.cross_attention):
            attention.heads //= share.count
            attention.norm_q, attention.norm_k = SplitNorm(attention.norm_q), SplitNorm(attention.norm_k)
        for layer in (block.self_attention.o, block.cross_attention.o, block.action.out, block.ffn[2]):
            layer.register_forward_hook(lambda layer, given, partial: _added_up(partial))
    return expert


class SplitNorm(nn.Module):
    """`QueryKeyNorm` over the full width for an input that has this process's part of it, ``[B, N, D / count]``.

    ``norm`` has this part's weights.
    """

    def __init__(self, norm: QueryKeyNorm) -> None:
        super().__init__()
        (self.width,), self.eps, self.weight = norm.normalized_shape, norm.eps, norm.weight

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        mean_square = _added_up(wide.square().sum(dim=-1, keepdim=True)) / self.width
        return (wide * torch.rsqrt(mean_square + self.eps) * self.weight).to(x.dtype)


class SplitStream(LargeStream):
    """A stream in every process. All go by what the one of the first process is told and have the same frames.

    They are called together. A snapshot has one share of a memory; all processes restore theirs at once.
    """

    def reset(
        self,
        slots: Sequence[int],
        starts: Sequence[np.ndarray | Tensor | None],
        captions: Sequence[StructuredCaption],
        seeds: Sequence[int],
        actions: Sequence[np.ndarray | Tensor | None] | None = None,
    ) -> Tensor:
        return super().reset(*_of_first(slots, starts, captions, seeds, actions))

    def step(self, actions: np.ndarray | Tensor) -> Tensor:
        return super().step(*_of_first(actions))

    def set_caption(
        self, slots: Sequence[int], scene: str | None = None, character: str | None = None, event: str | None = None
    ) -> None:
        super().set_caption(*_of_first(slots, scene, character, event))


def _added_up(partial: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if not partial.is_meta:  # a plan is made without the others
        distributed.all_reduce(partial)
    return partial


def _of_first(*given: Any) -> Sequence[Any]:
    """What the first process gives here."""
    told = [tree_map_only(Tensor, Tensor.cpu, given)]  # a tensor would come to the GPU that it was on
    distributed.broadcast_object_list(told)
    return told[0]
