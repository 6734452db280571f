"""What an expert needs beside it, from the original files: the autoencoders and the caption encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from world_model.codec import light
from world_model.codec.light import LightCodec, LightCodecConfig
from world_model.large.conditioning import StreamingCodec
from world_model.large.tensor_files import TensorFiles, check_no_pickle, fill

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


def open_codec(place: Path, device: torch.device) -> StreamingCodec:
    """The Wan autoencoder in a folder in diffusers' format or in a safetensors copy of the original file, or the light
    one in its published file, which is told by its names.

    Raises:
        FileNotFoundError: when there is nothing at that place.
        ValueError: for weights in a pickle.
    """
    if not place.exists():
        raise FileNotFoundError(
            f"there is no {place}: a large world needs Wan's autoencoder; link the folder vae of a Wan pipeline in "
            "diffusers' format there (`wp2 convert --companions` does it)"
        )
    if place.is_dir():
        from world_model.codec.wan import WanCodec

        check_no_pickle(place)
        return WanCodec.from_pretrained(str(place)).to(device)
    names = TensorFiles([place]).shapes
    load = load_light_codec if all(name.startswith(light.PARTS) for name in names) else load_wan_codec
    return load([place], device=device).to(device)


def open_text(place: Path, tokenizer: Path, device: torch.device) -> Callable[[str], Tensor]:
    """The caption encoder in a folder in transformers' format, or in a safetensors copy of the original file, as a
    function of one text that gives tokens ``[L, X]``.

    Raises:
        FileNotFoundError: when there is nothing at one of the places.
        ValueError: for weights in a pickle.
    """
    for needed, what in ((place, "text_encoder"), (tokenizer, "tokenizer")):
        if not needed.exists():
            raise FileNotFoundError(
                f"there is no {needed}: a large world needs umT5; link the folder {what} of a Wan pipeline in "
                "diffusers' format there (`wp2 convert --companions` does it)"
            )
    from transformers import AutoTokenizer, UMT5EncoderModel

    from world_model.text.umt5 import UMT5Encoder

    words = AutoTokenizer.from_pretrained(str(tokenizer))
    if place.is_dir():
        check_no_pickle(place)
        model = UMT5EncoderModel.from_pretrained(str(place), use_safetensors=True).to(device, torch.bfloat16)
        encoder = UMT5Encoder(model.eval().requires_grad_(False), words)
    else:
        encoder = load_umt5([place], words, dtype=torch.bfloat16, device=device)
    return lambda text: encoder.encode([text])[0]
