"""Starting the curriculum from public Wan video weights, in the diffusers format.

Everything that Wan does not have starts so that the first step equals the base model: the action residual's last layer
at zero, the compressor's last layer at zero, and, where the base knows no start picture, the conditioning channels'
part of the patch embedding at zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.large.compressor import HistoryCompressor
from world_model.large.config import SINGLE, LargeConfig
from world_model.large.expert import Expert
from world_model.large.names import PATCH, from_published, published_name, published_shape
from world_model.large.tensor_files import TensorFiles, assign, check, weight_files
from world_model.large.transformer import TruncatedActionEmbedding
from world_model.transformer.actions import ActionResidual

NEW = r"(action_in_|memory_compress\.).*|blocks\.\d+\.img_action_mlp\..*"  # published names of what Wan lacks
RENAMES = (  # pattern of the published name, diffusers' name
    (r"text_embedding\.0\.(.*)", r"condition_embedder.text_embedder.linear_1.\1"),
    (r"text_embedding\.2\.(.*)", r"condition_embedder.text_embedder.linear_2.\1"),
    (r"time_embedding\.0\.(.*)", r"condition_embedder.time_embedder.linear_1.\1"),
    (r"time_embedding\.2\.(.*)", r"condition_embedder.time_embedder.linear_2.\1"),
    (r"time_projection\.1\.(.*)", r"condition_embedder.time_proj.\1"),
    (r"(blocks\.\d+)\.self_attn\.o\.(.*)", r"\1.attn1.to_out.0.\2"),
    (r"(blocks\.\d+)\.self_attn\.([qkv])\.(.*)", r"\1.attn1.to_\2.\3"),
    (r"(blocks\.\d+)\.self_attn\.(norm_.*)", r"\1.attn1.\2"),
    (r"(blocks\.\d+)\.cross_attn\.o\.(.*)", r"\1.attn2.to_out.0.\2"),
    (r"(blocks\.\d+)\.cross_attn\.([qkv])\.(.*)", r"\1.attn2.to_\2.\3"),
    (r"(blocks\.\d+)\.cross_attn\.(norm_.*)", r"\1.attn2.\2"),
    (r"(blocks\.\d+)\.norm3\.(.*)", r"\1.norm2.\2"),  # diffusers counts the norms in the order of their use
    (r"(blocks\.\d+)\.ffn\.0\.(.*)", r"\1.ffn.net.0.proj.\2"),
    (r"(blocks\.\d+)\.ffn\.2\.(.*)", r"\1.ffn.net.2.\2"),
    (r"(blocks\.\d+)\.modulation", r"\1.scale_shift_table"),
    (r"head\.modulation", r"scale_shift_table"),
    (r"head\.head\.(.*)", r"proj_out.\1"),
)


def diffusers_name(published: str) -> str:
    """The name in diffusers' `WanTransformer3DModel` of a tensor of the published layout that Wan has too."""
    for pattern, replacement in RENAMES:
        if match := re.fullmatch(pattern, published):
            return match.expand(replacement)
    return published


def base_files(source: Path, expert: str) -> list[Path]:
    """The files of one expert in a folder laid out as a diffusers pipeline; of a single expert, also the file itself
    or its own folder.

    The pipelines of two experts hold that of the high noise levels in ``transformer``, the other in ``transformer_2``.

    Raises:
        FileNotFoundError: when they are not there.
    """
    inside = source / ("transformer_2" if expert == "low" else "transformer")
    found = [source] if source.is_file() else weight_files(inside)
    if not found and expert == SINGLE:
        found = weight_files(source)
    if not found:
        raise FileNotFoundError(
            f"{source} holds no Wan weights in diffusers' format; give a folder with {inside.name}/*.safetensors"
        )
    return found


def load_base(
    files: Sequence[Path],
    config: LargeConfig,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Expert:
    """An untrained `Expert` on the weights of a diffusers Wan transformer; ``seed`` decides its new modules.

    Raises:
        ValueError: for files that are not safetensors, and for missing, unknown or misshaped tensors, listed by name.
    """
    with torch.device("meta"):
        expert = Expert(config)
    for name, value in base_tensors(files, config, seed):
        assign(expert, name, value.to(device, dtype).contiguous())
    return expert.requires_grad_(True)


def base_tensors(files: Sequence[Path], config: LargeConfig, seed: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Our names and the tensors of an untrained expert on Wan's weights, read or made one module after the other.

    Raises:
        ValueError: before the first tensor, for files that are not safetensors and for tensors that do not fit.
    """
    source = TensorFiles(files)
    with torch.device("meta"):
        expert = Expert(config)
    published = {name: published_name(name) for name in expert.state_dict()}
    kept = {name: theirs for name, theirs in published.items() if not re.fullmatch(NEW, theirs)}
    patch = config.world.transformer.patch
    wanted = {
        diffusers_name(theirs): published_shape(theirs, tuple(expert.get_parameter(name).shape), patch)
        for name, theirs in kept.items()
    }
    if len(shape := source.shapes.get(PATCH, ())) == 5 and shape[1] == config.world.codec.latent_channels:
        wanted[PATCH] = (wanted[PATCH][0], shape[1], *wanted[PATCH][2:])
    check(source, wanted, config.world.name)
    for name, theirs in kept.items():
        value = source[diffusers_name(theirs)]
        if theirs == PATCH:
            value = _with_channels(value, config.input_channels)
        yield name, from_published(theirs, value)
    yield from _new_tensors(config, seed)


def _with_channels(weight: Tensor, channels: int) -> Tensor:
    """A patch embedding ``[D, C, 1, p, p]`` for more channels, which it ignores."""
    return functional.pad(weight, (0, 0, 0, 0, 0, 0, 0, channels - weight.shape[1]))


def _new_tensors(config: LargeConfig, seed: int) -> Iterator[tuple[str, Tensor]]:
    """The tensors that Wan lacks, as they start; every module has a seed of its own."""
    sizes = config.world.transformer
    places: dict[str, Callable[[], nn.Module]] = {
        "transformer.action_embedding": lambda: TruncatedActionEmbedding(
            sizes.width, sizes.action_widths, sizes.camera_scale
        ),
        **{f"transformer.blocks.{i}.action": lambda: ActionResidual(sizes.width) for i in range(sizes.depth)},
        "compressor": lambda: HistoryCompressor(config),
    }
    for index, (place, make) in enumerate(places.items()):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + index)
            module = make()
        for name, value in module.state_dict().items():
            yield f"{place}.{name}", value
