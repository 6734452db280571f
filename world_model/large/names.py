"""Our tensor names and those of the published files (Wan's, with the WorldPlay2 additions).

The table is read from ours to theirs; both directions of reading a checkpoint follow from it, and so do its error
messages, which speak of the names that the file ought to have.
"""

from __future__ import annotations

import re

from torch import Tensor

RENAMES = (  # pattern of our name, the published one
    (r"transformer\.(patch_embedding|text_embedding|time_embedding|time_projection)\.(.*)", r"\1.\2"),
    (r"transformer\.action_embedding\.camera\.(.*)", r"action_in_cont.\1"),
    (r"transformer\.action_embedding\.discrete\.(.*)", r"action_in_disc.\1"),
    (r"transformer\.head_modulation", r"head.modulation"),
    (r"transformer\.blocks\.(\d+)\.self_attention\.(.*)", r"blocks.\1.self_attn.\2"),
    (r"transformer\.blocks\.(\d+)\.cross_norm\.(.*)", r"blocks.\1.norm3.\2"),
    (r"transformer\.blocks\.(\d+)\.cross_attention\.(.*)", r"blocks.\1.cross_attn.\2"),
    (r"transformer\.blocks\.(\d+)\.action\.hidden\.(.*)", r"blocks.\1.img_action_mlp.0.\2"),
    (r"transformer\.blocks\.(\d+)\.action\.out\.(.*)", r"blocks.\1.img_action_mlp.2.\2"),
    (r"transformer\.blocks\.(\d+)\.(ffn\..*|modulation)", r"blocks.\1.\2"),
    (r"compressor\.(input|output)\.(.*)", r"memory_compress.\1_layer.\2"),
    (r"compressor\.blocks\.(\d+)\.shortcut\.(.*)", r"memory_compress.blocks.\1.avg_shortcut.\2"),
    (r"compressor\.blocks\.(\d+)\.resample\.(.*)", r"memory_compress.blocks.\1.resample.1.\2"),
    (r"compressor\.blocks\.(\d+)\.(.*)", r"memory_compress.blocks.\1.\2"),
    (r"compressor\.attention\.(\d+)\.gain", r"memory_compress.attn_blocks.\1.norm.gamma"),
    (r"compressor\.attention\.(\d+)\.qkv\.(.*)", r"memory_compress.attn_blocks.\1.to_qkv.\2"),
    (r"compressor\.attention\.(\d+)\.proj\.(.*)", r"memory_compress.attn_blocks.\1.proj.\2"),
)
HEAD = r"transformer\.head\.(weight|bias)"
PLAIN_HEAD, FEW_STEP_HEAD = r"head.head.\1", r"head.block_\1"
PATCH = "patch_embedding.weight"


def published_name(name: str, few_step: bool = False) -> str:
    """The published name of one of an `Expert`'s tensors.

    Raises:
        KeyError: when the expert has no such tensor.
    """
    for pattern, replacement in (*RENAMES, (HEAD, FEW_STEP_HEAD if few_step else PLAIN_HEAD)):
        if match := re.fullmatch(pattern, name):
            return match.expand(replacement)
    raise KeyError(name)


def published_shape(name: str, shape: tuple[int, ...], patch: int) -> tuple[int, ...]:
    """The shape that a tensor of ours has in a published file, ``name`` being its published name."""
    if name == PATCH:
        return shape[0], shape[1] // patch**2, 1, patch, patch
    return (1, *shape) if name.endswith("modulation") else shape


def from_published(name: str, value: Tensor) -> Tensor:
    """A tensor of a published file in our shape."""
    if name == PATCH:  # a convolution [D, C, 1, p, p] whose inputs we order (y, x, channel), channel fastest
        return value[:, :, 0].permute(0, 2, 3, 1).flatten(1)
    return value[0] if name.endswith("modulation") else value
