"""The same world, faster: techniques that can be switched on one by one, after its weights are loaded.

What they change is how products are computed, never which ones: a stream of an accelerated world is used like any
other. It is for inference; train and save the world that it was made of.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from world_model.transformer import Conditioning, KeyValue
from world_model.transformer.block import Attention, Block, SelfAttention
from world_model.world import World

BACKEND = "inductor"  # of torch.compile
FLOAT8 = torch.float8_e4m3fn
FLOAT8_CAPABILITY = (8, 9)  # of the first NVIDIA GPUs that multiply in it
WARM_UP = 3  # runs before a CUDA graph is recorded, as torch advises


@dataclass(frozen=True)
class Techniques:
    """What is switched on; in this order they are put to use."""

    fused_projections: bool = False  # queries, keys and values of self-attention in one product
    cached_text: bool = False  # a caption's keys and values are kept until another caption comes
    bfloat16: bool = False  # of the networks; noise levels and latents stay float32
    int8: bool = False  # weights of the blocks' layers, with a scale per output; activations keep their precision
    float8: bool = False  # weights and activations of the blocks' layers, with one scale each
    compiled: bool = False  # blocks, by torch.compile; the first steps are slow
    graphed: bool = False  # all blocks as one CUDA graph, launched at once

    def __post_init__(self) -> None:
        if self.int8 and self.float8:
            raise ValueError("int8 and float8 are two precisions of the same weights; choose one")

    def missing(self, device: torch.device) -> str | None:
        """What these techniques need that is not here, None when they can be used on ``device``."""
        if self.graphed and device.type != "cuda":
            return "needs a GPU"
        if self.float8 and (device.type != "cuda" or torch.cuda.get_device_capability(device) < FLOAT8_CAPABILITY):
            return "needs a GPU of compute capability 8.9"
        compiler = os.environ.get("CXX", "g++")
        if self.compiled and device.type == "cpu" and not (shutil.which(compiler) or shutil.which("clang++")):
            return f"needs a C++ compiler ({compiler} is not installed)"
        return None


def accelerated(world: World, techniques: Techniques) -> World:
    """A world that shares the weights of ``world`` as far as their precision stays, on the same device.

    Raises:
        ValueError: naming what a technique needs that is not here, and for large worlds, whose experts have 8 bits on
            request (``dtype="int8"``) and nothing else of this.
    """
    if not isinstance(world, World):
        raise ValueError(f"{world.name} is a large world, which is not accelerated; load it with dtype='int8' instead")
    missing = techniques.missing(world.device)
    if missing:
        names = ", ".join(item.name for item in fields(techniques) if getattr(techniques, item.name))
        raise ValueError(f"{names} {missing}; leave out what is not there")
    world = _twin(world)
    if techniques.fused_projections:
        for block in world.transformer.blocks:
            block.self_attention = FusedSelfAttention(block.self_attention)
    if techniques.bfloat16:
        for network in (world.transformer, world.compressor, world.codec):
            network.to(torch.bfloat16)
    for kind in [Int8Linear] * techniques.int8 + [Float8Linear] * techniques.float8:
        for block in world.transformer.blocks:
            _exchange_layers(block, kind)
    if techniques.compiled:
        for block in world.transformer.blocks:
            block.compile(backend=BACKEND, dynamic=False)  # equal blocks share what is compiled
    if techniques.cached_text:
        _cache_text(world)
    if techniques.graphed:
        world.transformer.forward = GraphedCalls(world.transformer.forward)
    return world.eval().requires_grad_(False)


def _twin(world: World) -> World:
    """Modules of their own around the same weights."""
    with torch.device("meta"):
        twin = World(world.config, world.path)
    twin.load_state_dict(world.state_dict(), assign=True)
    return twin


class FusedSelfAttention(SelfAttention):
    """Self-attention that reads its tokens once for queries, keys and values."""

    def __init__(self, attention: SelfAttention) -> None:
        nn.Module.__init__(self)
        self.heads = attention.heads
        layers = attention.q, attention.k, attention.v
        with torch.device("meta"):
            self.qkv = nn.Linear(attention.q.in_features, sum(layer.out_features for layer in layers))
        stacked = {name: torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias")}
        self.qkv.load_state_dict(stacked, assign=True)
        self.o, self.norm_q, self.norm_k = attention.o, attention.norm_q, attention.norm_k

    def project(self, x: Tensor, source: Tensor) -> tuple[Tensor, KeyValue]:
        return self.split(*self.qkv(x).chunk(3, dim=-1))


class CaptionReader(nn.Module):
    """Caption tokens ``[B, L, text width]`` to the keys and values that every block's cross-attention needs.

    The newest caption of each batch size is remembered with what was made of it. Whether it is still the same is seen
    from its numbers, so it may be changed in place.
    """

    def __init__(self, embedding: nn.Module, attentions: list[Attention]) -> None:
        super().__init__()
        self.embedding = embedding
        self.attentions = nn.ModuleList(attentions)
        self._read: dict[int, tuple[Tensor, list[KeyValue]]] = {}

    def forward(self, caption: Tensor) -> list[KeyValue]:
        known = self._read.get(len(caption))
        if known is None or not torch.equal(known[0], caption):
            embedded = self.embedding(caption)
            pairs = [attention.project(embedded[:, :0], embedded)[1] for attention in self.attentions]
            known = self._read[len(caption)] = caption.clone(), pairs
        return known[1]


class ReadCrossAttention(Attention):
    """Cross-attention to a caption that a `CaptionReader` has read for it."""

    def __init__(self, attention: Attention) -> None:
        nn.Module.__init__(self)
        self.heads = attention.heads
        self.q, self.o, self.norm_q = attention.q, attention.o, attention.norm_q

    def forward(self, x: Tensor, caption: KeyValue, mask: Tensor | None) -> Tensor:
        query = self.norm_q(self.q(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.attend(query, *caption, mask)


class NumberedBlock(nn.Module):
    """A block that is given the caption's keys and values of all blocks and takes its own."""

    def __init__(self, block: Block, number: int) -> None:
        super().__init__()
        self.block = block
        self.number = number

    def forward(self, x: Tensor, given: Conditioning, *rest: object) -> tuple[Tensor, KeyValue]:
        return self.block(x, given._replace(caption=given.caption[self.number]), *rest)


def _cache_text(world: World) -> None:
    network = world.transformer
    network.text_embedding = CaptionReader(network.text_embedding, [b.cross_attention for b in network.blocks])
    for block in network.blocks:
        block.cross_attention = ReadCrossAttention(block.cross_attention)
    network.blocks = nn.ModuleList(NumberedBlock(block, number) for number, block in enumerate(network.blocks))


class Int8Linear(nn.Module):
    """A linear layer whose weights are int8 with one scale per output (symmetric, rounded to nearest)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        scale = layer.weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-12).float() / 127
        self.register_buffer("weight", (layer.weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale[:, 0].to(layer.weight.dtype))
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu":  # a kernel that reads int8
            product = torch._weight_int8pack_mm(x.flatten(0, -2).contiguous(), self.weight, self.scale.to(x.dtype))
            return product.unflatten(0, x.shape[:-1]) + self.bias
        return functional.linear(x, self.weight.to(x.dtype)) * self.scale + self.bias


class Float8Linear(nn.Module):
    """A linear layer in E4M3: one scale for the weights, and one for the inputs of each call."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = _to_float8(layer.weight)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        rows, scale = _to_float8(x.flatten(0, -2))
        product = torch._scaled_mm(rows, self.weight.t(), scale, self.scale, out_dtype=torch.bfloat16)
        return (product.unflatten(0, x.shape[:-1]) + self.bias).to(x.dtype)


def _to_float8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers in E4M3 and the float32 factor that gives them back."""
    scale = (x.abs().amax().float() / torch.finfo(FLOAT8).max).clamp_min(1e-12)
    return (x / scale).to(FLOAT8), scale


def _exchange_layers(block: Block, kind: Callable[[nn.Linear], nn.Module]) -> None:
    """Put ``kind`` in place of a block's linear layers; `ActionResidual.hidden` stays, whose halves are used alone."""
    for parent, name, layer in [*_linear_layers(block)]:
        if layer is not block.action.hidden:
            setattr(parent, name, kind(layer))


def _linear_layers(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                yield parent, name, child


class GraphedCalls:
    """A function of tensors as one CUDA graph for each combination of their shapes.

    Inputs are copied to where the graph reads them and results from where it leaves them. What the function writes
    into its inputs stays in the copies.
    """

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.graphs: dict[tuple, tuple[list[Tensor], Callable[[], object]]] = {}

    def __call__(self, *given: object) -> object:
        leaves, structure = tree_flatten(given)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        others = tuple(leaf for leaf in leaves if not isinstance(leaf, Tensor))
        key = structure, others, tuple((x.shape, x.dtype, x.device) for x in tensors)
        if key not in self.graphs:
            places = [x.clone() for x in tensors]
            filled = iter(places)
            copies = tree_unflatten([next(filled) if isinstance(x, Tensor) else x for x in leaves], structure)
            self.graphs[key] = places, record(lambda: self.function(*copies))
        places, replay = self.graphs[key]
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor)
        return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, replay())


def record(run: Callable[[], object]) -> Callable[[], object]:
    """Record what ``run`` launches; the result launches it again and gives the same tensors, filled anew."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()

    def replay() -> object:
        graph.replay()
        return results

    return replay
