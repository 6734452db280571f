"""What generating with a large world needs of each GPU's memory, found without one: nothing here holds a number.

Weights are counted from the modules on the meta device. Activations are not a formula: the real modules run there, and
the bytes that are alive at once are followed, with attention in torch's fused form, which keeps its inputs, its output
and one float32 per query. A rollout is divided as in `parallel`: the GPUs have one batch together, and each a part of
every block and of the key-value cache. What training needs is found in the same way, in `training.memory_plan`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from world_model.controls import ACTION_DIM
from world_model.large.compressor import REACH, TEMPORAL_STRIDE
from world_model.large.conditioning import SHRINK
from world_model.large.config import LARGE_PRESETS, MAX_LATENTS, LargeConfig
from world_model.large.denoise import evaluate
from world_model.large.expert import Expert
from world_model.large.few_step import calls_of
from world_model.large.parallel import Share, check_split, split, split_axis
from world_model.transformer import Conditioning, KeyValue
from world_model.undrawn import Undrawn

PRESETS = LARGE_PRESETS
MASTER, COMPUTE = torch.float32, torch.bfloat16  # what is updated, and what codecs have; what is multiplied
CODECS = {8: 126_892_531, 16: 704_688_668}  # parameters of Wan2.1's and Wan2.2's, by their spatial factor
CAPTION_ENCODER = 5_680_910_336  # parameters of umT5-XXL's


@dataclass(frozen=True)
class Item:
    """One use of memory: its bytes before they are split, and how many of them are."""

    what: str
    bytes: int
    split: int = 0

    def per_gpu(self, gpus: int) -> int:
        """Bytes on each of ``gpus`` GPUs."""
        return self.bytes - self.split + -(-self.split // gpus)


@dataclass(frozen=True)
class Plan:
    """Where the memory of each of ``gpus`` GPUs goes."""

    parameters: int  # of all networks that are loaded
    tokens: int  # of the longest sequence that a network reads, cached ones included
    gpus: int
    items: tuple[Item, ...]

    @property
    def total(self) -> int:
        """Bytes on each GPU."""
        return sum(item.per_gpu(self.gpus) for item in self.items)


def latents_of(config: LargeConfig, frames: int) -> int:
    """Latents of a video of ``frames`` frames.

    Raises:
        ValueError: when they are not a whole number of chunks, or more than the model has positions for.
    """
    factor, chunk = config.world.codec.temporal_factor, config.world.chunk_latents
    latents = (frames + factor - 1) // factor
    if frames < 1 or (frames + factor - 1) % factor or latents % chunk:
        low = max(1, latents // chunk)
        near = " or ".join(str(frames_of(config, chunk * count)) for count in (low, low + 1))
        raise ValueError(
            f"{frames} frames are no whole number of chunks of {chunk} latents, of which the first is "
            f"{factor * (chunk - 1) + 1} frames and the others {factor * chunk}; give {near}"
        )
    if latents > MAX_LATENTS:
        most = frames_of(config, MAX_LATENTS)
        raise ValueError(
            f"{frames} frames are {latents} latents, and the model has positions for {MAX_LATENTS}; give at most {most}"
        )
    return latents


def frames_of(config: LargeConfig, latents: int) -> int:
    """Frames of a video of ``latents`` latents, the first of which is one frame."""
    return config.world.codec.temporal_factor * (latents - 1) + 1


def plan_rollout(config: LargeConfig, latents: int, gpus: int = 1, batch: int = 1, few_step: bool = True) -> Plan:
    """The memory to generate ``latents`` latents, ``batch`` rollouts on all GPUs together; guidance doubles a batch.

    The codec and the caption encoder count with their weights alone.

    Raises:
        ValueError: when the blocks do not split among so many GPUs.
    """
    check_split(config, gpus)
    few_step = few_step and bool(calls_of(config))  # a preset that nothing was distilled from yet has no heads for it
    expert, experts = on_meta(config, few_step), len(config.experts)  # training has one at a time
    count = sum(value.numel() for value in expert.parameters())
    divided = sum(value.numel() for name, value in expert.named_parameters() if split_axis(name) is not None)
    expert = split(expert, Share(0, gpus))
    history = latents - config.world.chunk_latents
    own = config.world.chunk_latents * _tokens_per_latent(config)
    kept = key_values(expert, batch, cached_tokens(config, history))
    context = key_values(expert, batch, cached_tokens(config, history) + own) if history else None
    with torch.no_grad(), FusedAttention():
        with Peak() as denoising:
            denoise_chunk(expert, latents, batch, context)
        with Peak() as growing:
            if history:
                grow_cache(expert, history, batch)
    cache = experts * (_bytes_of(kept) + _bytes_of(context))  # and its copy with room
    items = (
        Item("weights", experts * count * COMPUTE.itemsize, experts * divided * COMPUTE.itemsize),
        Item("activations", max(denoising.bytes, growing.bytes)),
        Item("key-value cache", gpus * cache, gpus * cache),
        Item("codec", CODECS[config.world.codec.spatial_factor] * MASTER.itemsize),
        Item("caption encoder", CAPTION_ENCODER * COMPUTE.itemsize),
    )
    return Plan(experts * count, cached_tokens(config, history) + own, gpus, items)


def on_meta(config: LargeConfig, few_step: bool = False) -> Expert:
    """An expert without numbers, in the precision of its computation."""
    with torch.device("meta"), Undrawn():
        return Expert(config, few_step).to(COMPUTE)


def cached_tokens(config: LargeConfig, history: int) -> int:
    """Tokens of a full memory of ``history`` latents."""
    if not history:
        return 0
    (rows, columns), memory = config.world.token_grid, config.world.memory
    small = (rows // SHRINK) * (columns // SHRINK)
    return (memory.sink_latents + memory.adjacent_latents) * rows * columns + history // TEMPORAL_STRIDE * small


def denoise_chunk(expert: Expert, latents: int, batch: int, context: list[KeyValue] | None) -> None:
    """One evaluation for the last chunk of a rollout of ``latents`` latents."""
    chunk = expert.config.world.chunk_latents
    x, rows, text = _latents(expert, batch, chunk), _rows(expert, batch, chunk), _text(expert, batch)
    call = 0 if expert.transformer.head.weight.ndim == 3 else None
    evaluate(expert, x, 1000.0, latents - chunk, rows, text, context, call=call)


def grow_cache(expert: Expert, history: int, batch: int) -> None:
    """What `context.extend_cache` computes for the last chunk of ``history`` latents, the new cache included."""
    config, network, chunk = expert.config, expert.transformer, expert.config.world.chunk_latents
    full, memory = _tokens_per_latent(config), config.world.memory
    lasting = cached_tokens(config, history - chunk) - memory.adjacent_latents * full if history > chunk else 0
    new = cached_tokens(config, history) - lasting
    expert.compressor(_latents(expert, batch, min(history, REACH - TEMPORAL_STRIDE + chunk)))
    context = key_values(expert, batch, lasting + new)
    tokens = torch.zeros(batch, new, config.world.transformer.width, dtype=COMPUTE, device=_device(expert))
    groups = memory.sink_latents * (lasting == 0) + chunk // TEMPORAL_STRIDE + memory.adjacent_latents
    given, positions = _steer(expert, batch, new, groups)
    mask = torch.ones(1, 1, new, lasting + new, dtype=torch.bool, device=tokens.device)
    network(tokens, given, positions, mask, context)


def key_values(expert: Expert, batch: int, tokens: int) -> list[KeyValue]:
    """One pair per block for ``tokens`` tokens, of the heads that the expert has."""
    network = expert.transformer
    heads = [block.self_attention.heads for block in network.blocks]
    weight = network.patch_embedding.weight
    return [KeyValue(*weight.new_zeros(2, batch, count, tokens, network.head_width)) for count in heads]


def _bytes_of(pairs: list[KeyValue] | None) -> int:
    return sum(x.nbytes for pair in pairs or () for x in pair)


def _tokens_per_latent(config: LargeConfig) -> int:
    rows, columns = config.world.token_grid
    return rows * columns


def _device(expert: Expert) -> torch.device:
    return expert.transformer.patch_embedding.weight.device


def _latents(expert: Expert, batch: int, count: int, shrink: int = 1) -> Tensor:
    """Conditioned latents ``[B, count, 16 + 20, h, w]``, or of the small video."""
    _, height, width = expert.config.world.latent_shape
    shape = batch, count, expert.config.input_channels, height // shrink, width // shrink
    return torch.zeros(shape, device=_device(expert))


def _rows(expert: Expert, batch: int, groups: int) -> Tensor:
    return torch.zeros(batch, groups, ACTION_DIM, device=_device(expert))


def _text(expert: Expert, batch: int) -> Tensor:
    return torch.zeros(batch, expert.config.text_tokens, expert.config.world.text.width, device=_device(expert))


def _steer(expert: Expert, batch: int, tokens: int, groups: int) -> tuple[Conditioning, Tensor]:
    """Conditioning and positions of ``tokens`` tokens in ``groups`` groups."""
    group = torch.zeros(tokens, dtype=torch.int64, device=_device(expert))
    timesteps = torch.zeros(batch, groups, device=_device(expert))
    given = expert.transformer.steer(group, timesteps, _rows(expert, batch, groups), _text(expert, batch))
    return given, torch.zeros(tokens, 3, device=_device(expert))


class Peak(TorchDispatchMode):
    """Follows the storages on the meta device that come into being inside it; ``bytes`` is the most that was alive at
    once.

    Storages that existed before are not counted, and the gradient of a parameter in ``trained`` only until it is whole:
    FSDP then splits it.
    """

    def __init__(self, trained: Iterable[nn.Parameter] = ()) -> None:
        super().__init__()
        self.bytes = self.alive = 0
        self._storages: dict[int, weakref.ref] = {}
        self._likes: dict[tuple, tuple] = {}
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(_forget)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch asks this when the class is made; else it wraps each operation in what costs more than following it."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if _kind(operation) is Kind.VIEW:  # makes no storage
            return operation(*args, **kwargs)
        given = list(_flat((*args, *kwargs.items())))
        made = self._run(operation, args, kwargs, given)
        old = {_key(x) for x in given if isinstance(x, Tensor)}
        for x in _flat((made,)):
            if isinstance(x, Tensor) and x.is_meta and _key(x) not in old:
                self._follow(x.untyped_storage())
        self.bytes = max(self.bytes, self.alive)
        return made

    def _run(self, operation: Any, args: tuple, kwargs: dict[str, Any], given: list[Any]) -> Any:
        """What an operation makes. To find shapes anew in every block would take most of the time, so they are kept."""
        if _kind(operation) is Kind.IN_PLACE:
            return operation(*args, **kwargs)
        call = operation, *(_like(x) if isinstance(x, Tensor) else (type(x), x) for x in given)
        if call in self._likes:
            likes = tuple(map(_empty, self._likes[call]))
            return likes if len(operation._schema.returns) > 1 else likes[0]
        made = operation(*args, **kwargs)
        several = made if isinstance(made, tuple) else (made,)
        if all(isinstance(x, Tensor) and x.is_meta for x in several):
            self._likes[call] = tuple(map(_like, several))
        return made

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages:
            return

        def died(_: weakref.ref) -> None:
            del self._storages[key]
            self.alive -= size

        self._storages[key] = weakref.ref(storage, died)
        self.alive += size


class Kind(Enum):
    """What an operation does to storages."""

    NEW = auto()
    VIEW = auto()
    IN_PLACE = auto()


@cache
def _kind(operation: Any) -> Kind:
    schema = operation._schema
    if schema.is_mutable:
        return Kind.IN_PLACE
    return Kind.VIEW if any(value.alias_info for value in schema.returns) else Kind.NEW


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """What an operation is given or gives, out of its lists; torch's `tree_leaves` takes five times as long."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _like(x: Tensor) -> tuple:
    """A tensor but for its numbers."""
    return x.shape, x.stride(), x.dtype, x.layout, x.device


def _empty(like: tuple) -> Tensor:
    shape, stride, dtype, layout, device = like
    return torch.empty_strided(shape, stride, dtype=dtype, layout=layout, device=device)


def _key(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _forget(parameter: Tensor) -> None:
    parameter.grad = None


class FusedAttention(TorchFunctionMode):
    """Gives attention the memory of torch's fused kernels, which there are none of on the meta device."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function is functional.scaled_dot_product_attention:
            return _Attention.apply(*args, kwargs.get("attn_mask"))
        return function(*args, **kwargs)


class _Attention(torch.autograd.Function):
    """The shapes of attention and of what its backward pass needs."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        bias = None if mask is None else query.new_empty(mask.shape)  # a mask is added to the scores
        out = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, bias, out, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(torch.empty_like(x) for x in ctx.saved_tensors[:3]), None
