"""What a large world needs of each GPU's memory, found without one: nothing here holds a number.

Weights, gradients and optimiser state are counted from the modules on the meta device. Activations are not a formula:
the real modules run there forward and, in training, backward, and the bytes that are alive at once are followed, with
attention in torch's fused form, which keeps its inputs, its output and one float32 per query.

Training is divided among GPUs as in `training.sharding`, with bf16 computation: what is one value per parameter is
split for the matrices of the blocks and whole for the little else; a GPU holds the block that it computes and the next
one whole, and every GPU has a batch, hence activations, of its own. A rollout is divided as in `parallel`: the GPUs
have one batch together, and each a part of every block and of the key-value cache.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from world_model.controls import ACTION_DIM
from world_model.large.compressor import REACH, TEMPORAL_STRIDE
from world_model.large.conditioning import SHRINK
from world_model.large.config import LARGE_PRESETS, LargeConfig
from world_model.large.denoise import evaluate
from world_model.large.expert import Expert
from world_model.large.few_step import calls_of
from world_model.large.parallel import Share, check_split, split, split_axis
from world_model.transformer import Conditioning, KeyValue

PRESETS = LARGE_PRESETS
STAGES = ("navigation", "autoregressive")  # bidirectional over a clip; teacher forcing over [memory | targets]
MASTER, COMPUTE = torch.float32, torch.bfloat16  # what is updated, what is multiplied
ADAMW_MOMENTS = 2  # values of AdamW's state per parameter
GATHERED_BLOCKS = 2  # whole on every GPU: the one at work and the one being fetched
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


class Sizes(NamedTuple):
    """How many parameters networks have."""

    all: int
    split: int  # in the matrices of the blocks
    gathered: int  # of these in the largest block

    def each(self, what: str, size: int) -> Item:
        """What takes ``size`` bytes for each parameter."""
        return Item(what, size * self.all, size * self.split)

    def computing(self, gpus: int) -> tuple[Item, Item]:
        """What computation adds in training: bf16 copies of weights that are whole, and on several GPUs blocks that
        come and gradients that go, which are averaged in float32."""
        whole = self.all - self.split if gpus > 1 else self.all
        passing = (GATHERED_BLOCKS + 1) * COMPUTE.itemsize + MASTER.itemsize if gpus > 1 else 0
        return (
            Item("weights in bf16", whole * COMPUTE.itemsize),
            Item("gathered blocks and gradients", passing * self.gathered),
        )


def latents_of(config: LargeConfig, frames: int) -> int:
    """Latents of a video of ``frames`` frames.

    Raises:
        ValueError: when they are not a whole number of chunks.
    """
    factor, chunk = config.world.codec.temporal_factor, config.world.chunk_latents
    latents = (frames + factor - 1) // factor
    if frames < 1 or (frames + factor - 1) % factor or latents % chunk:
        low = max(1, latents // chunk)
        near = " or ".join(str(factor * chunk * count - factor + 1) for count in (low, low + 1))
        raise ValueError(
            f"{frames} frames are no whole number of chunks of {chunk} latents, of which the first is "
            f"{factor * (chunk - 1) + 1} frames and the others {factor * chunk}; give {near}"
        )
    return latents


def plan_training(
    config: LargeConfig, stage: str, latents: int, gpus: int = 1, batch: int = 1, recompute: bool = True
) -> Plan:
    """The memory to train one network on clips of ``latents`` latents, ``batch`` of them on each GPU.

    With ``recompute`` the blocks' activations are computed again in the backward pass (checkpointing). On one GPU
    nothing is gathered; there all weights have a copy in bf16 instead.
    """
    expert = on_meta(config, recompute=recompute)
    sizes = sizes_of(expert)
    with FusedAttention(), Peak(expert) as peak:
        loss, tokens = training_loss(expert, stage, latents, batch)
        loss.backward()
    items = (
        sizes.each("weights", MASTER.itemsize),
        sizes.each("gradients", MASTER.itemsize),
        sizes.each("optimiser (AdamW)", ADAMW_MOMENTS * MASTER.itemsize),
        sizes.each("averaged weights", MASTER.itemsize),
        *sizes.computing(gpus),
        Item("activations", peak.bytes),
    )
    return Plan(sizes.all, tokens, gpus, items)


def plan_rollout(config: LargeConfig, latents: int, gpus: int = 1, batch: int = 1, few_step: bool = True) -> Plan:
    """The memory to generate ``latents`` latents, ``batch`` rollouts on all GPUs together; guidance doubles a batch.

    The codec and the caption encoder count with their weights alone.

    Raises:
        ValueError: when the blocks do not split among so many GPUs.
    """
    check_split(config, gpus)
    few_step = few_step and bool(calls_of(config))  # a preset that nothing was distilled from yet has no heads for it
    expert, experts = on_meta(config, few_step), len(config.experts)  # training has one at a time
    count = sizes_of(expert).all
    divided = sum(value.numel() for name, value in expert.named_parameters() if split_axis(name) is not None)
    expert = split(expert, Share(0, gpus))
    history = latents - config.world.chunk_latents
    own = config.world.chunk_latents * _tokens_per_latent(config)
    kept = key_values(expert, batch, cached_tokens(config, history))
    context = key_values(expert, batch, cached_tokens(config, history) + own) if history else None
    with torch.no_grad(), FusedAttention():
        with Peak(expert) as denoising:
            denoise_chunk(expert, latents, batch, context)
        with Peak(expert) as growing:
            if history:
                grow_cache(expert, history, batch)
    cache = experts * (_bytes_of(kept) + _bytes_of(context))  # and its copy with room
    items = (
        Item("weights", experts * count * COMPUTE.itemsize, experts * divided * COMPUTE.itemsize),
        Item("activations", max(denoising.bytes, growing.bytes)),
        Item("key-value cache", gpus * cache, gpus * cache),
        Item("codec", CODECS[config.world.codec.spatial_factor] * COMPUTE.itemsize),
        Item("caption encoder", CAPTION_ENCODER * COMPUTE.itemsize),
    )
    return Plan(experts * count, cached_tokens(config, history) + own, gpus, items)


def on_meta(config: LargeConfig, few_step: bool = False, recompute: bool = False) -> Expert:
    """An expert without numbers, in the precision of its computation."""
    with torch.device("meta"):
        expert = Expert(config, few_step).to(COMPUTE)
    if recompute:
        network = expert.transformer
        network.blocks = nn.ModuleList(RecomputedBlock(block) for block in network.blocks)
    return expert


def sizes_of(expert: Expert) -> Sizes:
    """Parameters of an expert."""
    matrices = {id(matrix) for matrix in expert.transformer.block_matrices()}
    blocks = [sum(x.numel() for x in block.parameters() if id(x) in matrices) for block in expert.transformer.blocks]
    return Sizes(sum(value.numel() for value in expert.parameters()), sum(blocks), max(blocks))


def cached_tokens(config: LargeConfig, history: int) -> int:
    """Tokens of a full memory of ``history`` latents."""
    if not history:
        return 0
    (rows, columns), memory = config.world.token_grid, config.world.memory
    small = (rows // SHRINK) * (columns // SHRINK)
    return (memory.sink_latents + memory.adjacent_latents) * rows * columns + history // TEMPORAL_STRIDE * small


def training_loss(expert: Expert, stage: str, latents: int, batch: int) -> tuple[Tensor, int]:
    """A loss that has the shapes of a stage's, with everything that leads to it; and the number of tokens read."""
    config, network = expert.config, expert.transformer
    world, memory = config.world, config.world.memory
    grid = world.token_grid
    noisy = _latents(expert, batch, latents)
    tokens, groups = network.embed_latents(noisy), latents
    own, mask = tokens.shape[1], None
    if stage == "autoregressive":
        past = latents - world.chunk_latents
        history, small = _latents(expert, batch, past), _latents(expert, batch, past // TEMPORAL_STRIDE, SHRINK)
        clean = network.embed_latents(history)
        compressed = network.embed_latents(small) + expert.compressor(history)
        sink = clean[:, : memory.sink_latents * grid[0] * grid[1]]
        tokens = torch.cat([sink, compressed, clean, tokens], dim=1)
        groups += past + past // TEMPORAL_STRIDE + memory.sink_latents
        mask = torch.ones(1, 1, tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device)
    given, positions = _steer(expert, batch, tokens.shape[1], groups)
    hidden, _ = network(tokens, given, positions, mask)
    velocity = network.velocity(hidden[:, -own:], given.time[:, -latents:], grid)
    target = torch.zeros_like(velocity)
    return (velocity - target).square().mean(), tokens.shape[1]


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


class RecomputedBlock(nn.Module):
    """A block that keeps its input alone and runs again in the backward pass."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, *given: Any) -> Any:
        # The second run happens inside `backward`, which no mode of ours reaches.
        modes = nullcontext(), FusedAttention() if x.is_meta else nullcontext()
        return checkpoint(self.block, x, *given, use_reentrant=False, context_fn=lambda: modes)


class Peak(TorchDispatchMode):
    """Follows the storages that come into being inside it; ``bytes`` is the most that was alive at once.

    Storages that existed before are not counted, and a parameter's gradient only until it is whole, since FSDP then
    splits it.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.bytes = self.alive = 0
        self._storages: dict[int, weakref.ref] = {}
        for parameter in filter(lambda parameter: parameter.requires_grad, module.parameters()):
            parameter.register_post_accumulate_grad_hook(_forget)

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = operation(*args, **(kwargs or {}))
        old = {_key(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in tree_leaves(made):
            if isinstance(x, Tensor) and _key(x) not in old:
                self._follow(x.untyped_storage())
        self.bytes = max(self.bytes, self.alive)
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
