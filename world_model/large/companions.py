"""What an expert needs beside it, from the original files: the autoencoders and the caption encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from world_model.codec import light
from world_model.codec.light import LightCodec, LightCodecConfig
from world_model.large.tensor_files import fill

if TYPE_CHECKING:
    from world_model.codec.wan import WanCodec
    from world_model.text.umt5 import UMT5Encoder


def load_light_codec(files: Sequence[Path], config: LightCodecConfig | None = None, **place: Any) -> LightCodec:
    """Load a light codec from its published files; ``place`` and errors as in `tensor_files.fill`."""
    with torch.device("meta"):
        codec = LightCodec(config)
    return fill(codec, files, light.published_name, "the light codec", **place)


def load_wan_codec(files: Sequence[Path], sizes: dict[str, Any] | None = None, **place: Any) -> WanCodec:
    """Load the Wan2.1 autoencoder from a safetensors copy of its original file; ``sizes`` are diffusers' settings.

    ``place`` and errors as in `tensor_files.fill`. Needs the extra ``large``.
    """
    from diffusers import AutoencoderKLWan

    from world_model.codec import wan

    with torch.device("meta"):
        vae = AutoencoderKLWan(**(sizes or {}))

    def name_of(name: str) -> str:
        return wan.original_name(name, vae.config.num_res_blocks)

    return wan.WanCodec(fill(vae, files, name_of, "the Wan autoencoder", **place))


def load_umt5(
    files: Sequence[Path], tokenizer: Any = None, sizes: dict[str, int] | None = None, **place: Any
) -> UMT5Encoder:
    """Load the caption encoder from a safetensors copy of its original file; ``sizes`` are transformers' settings.

    ``place`` and errors as in `tensor_files.fill`. Needs the extra ``large``.
    """
    from transformers import UMT5EncoderModel

    from world_model.text import umt5

    with torch.device("meta"):
        model = UMT5EncoderModel(umt5.configuration(**(sizes or {})))
    model = fill(model, files, umt5.original_name, "the umT5 encoder", **place)
    model.tie_weights()
    return umt5.UMT5Encoder(model, tokenizer)
