"""Reading published weights: safetensors only, one tensor at a time, so that no second copy is ever in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from world_model.checkpoint import misfits
from world_model.codec import light
from world_model.codec.light import LightCodec, LightCodecConfig
from world_model.large.config import LargeConfig
from world_model.large.expert import Expert
from world_model.large.few_step import bank_shape, fuse_bank
from world_model.large.names import from_published, published_name, published_shape

if TYPE_CHECKING:
    from world_model.codec.wan import WanCodec
    from world_model.text.umt5 import UMT5Encoder

Module = TypeVar("Module", bound=torch.nn.Module)
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
WRAPPERS = ("module.", "model.")  # prefixes that training code leaves on every name; stripped in this order
BANK_NAMES = tuple(f"head.{form}" for form in ("{}", "pdd_{}", "head.{}"))  # of a head per interval, one extra axis


class TensorFiles:
    """The tensors of one or several safetensors files by name, read when asked for.

    Raises:
        ValueError: for a file that is no safetensors file, a damaged one, or a tensor that two files hold.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places = {}
        for file in self.files:
            reader = _open(file)
            for name in reader.keys():
                if name in self._places:
                    raise ValueError(f"both {self._places[name][0]} and {file} hold {name}; leave one of them out")
                self._places[name] = file, reader, name
                self.shapes[name] = tuple(reader.get_slice(name).get_shape())
        for prefix in WRAPPERS:
            if self._places and all(name.startswith(prefix) for name in self._places):
                self._places = {name.removeprefix(prefix): place for name, place in self._places.items()}
                self.shapes = {name.removeprefix(prefix): shape for name, shape in self.shapes.items()}

    def __getitem__(self, name: str) -> Tensor:
        _, reader, stored = self._places[name]
        return reader.get_tensor(stored)

    def __str__(self) -> str:
        return ", ".join(str(file) for file in self.files)


def expert_files(folder: Path, expert: str) -> list[Path]:
    """The files of one expert, "high" or "low", in a folder laid out as a published repository.

    Raises:
        FileNotFoundError: when they are not there.
    """
    inside = folder / f"{expert}_noise_model"
    for index in (*sorted(inside.glob("*.safetensors.index.json")), *sorted(folder.glob(f"{inside.name}*.index.json"))):
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [index.parent / name for name in sorted(names)]
    found = sorted(inside.glob("*.safetensors")) or sorted(folder.glob(f"{inside.name}*.safetensors"))
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no weights of the {expert}-noise expert; put them in {inside.name}/ or "
            f"{inside.name}.safetensors"
        )
    return found


def load_expert(
    files: Sequence[Path],
    config: LargeConfig,
    few_step: str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    device: str | torch.device = "cpu",
) -> Expert:
    """Load one expert from its published files onto ``device`` in ``dtype``.

    ``few_step`` is "high" or "low" for an expert of the 4-step model, whose heads may be fused already or still be one
    per interval; None for the models with a plain head.

    Raises:
        ValueError: for files that are not safetensors, and for missing, unknown or misshaped tensors, listed by name.
    """
    source = TensorFiles(files)
    with torch.device("meta"):
        expert = Expert(config, few_step is not None)
    names = {name: published_name(name, few_step is not None) for name in expert.state_dict()}
    patch = config.world.transformer.patch
    wanted = {
        names[name]: published_shape(names[name], tuple(value.shape), patch)
        for name, value in expert.state_dict().items()
    }
    banks = _interval_banks(source) if few_step else {}
    for fused, bank in banks.items():
        wanted[bank] = bank_shape(wanted.pop(fused), few_step)
    _check(source, wanted, config.world.name)
    for ours, theirs in names.items():
        value = fuse_bank(source[banks[theirs]], few_step) if theirs in banks else source[theirs]
        _assign(expert, ours, from_published(theirs, value).to(device, dtype).contiguous())
    return expert.eval().requires_grad_(False)


def load_light_codec(files: Sequence[Path], config: LightCodecConfig | None = None, **place: Any) -> LightCodec:
    """Load a light codec from its published files; ``place`` and errors as in `load_expert`, float32 by default."""
    with torch.device("meta"):
        codec = LightCodec(config)
    return _renamed(codec, files, light.published_name, "the light codec", **place)


def load_wan_codec(files: Sequence[Path], sizes: dict[str, Any] | None = None, **place: Any) -> WanCodec:
    """Load the Wan2.1 autoencoder from a safetensors copy of its original file; ``sizes`` are diffusers' settings.

    ``place`` and errors as in `load_expert`, float32 by default. Needs the extra ``large``.
    """
    from diffusers import AutoencoderKLWan

    from world_model.codec import wan

    with torch.device("meta"):
        vae = AutoencoderKLWan(**(sizes or {}))

    def name_of(name: str) -> str:
        return wan.original_name(name, vae.config.num_res_blocks)

    return wan.WanCodec(_renamed(vae, files, name_of, "the Wan autoencoder", **place))


def load_umt5(
    files: Sequence[Path], tokenizer: Any = None, sizes: dict[str, int] | None = None, **place: Any
) -> UMT5Encoder:
    """Load the caption encoder from a safetensors copy of its original file; ``sizes`` are transformers' settings.

    ``place`` and errors as in `load_expert`, float32 by default. Needs the extra ``large``.
    """
    from transformers import UMT5EncoderModel

    from world_model.text import umt5

    with torch.device("meta"):
        model = UMT5EncoderModel(umt5.configuration(**(sizes or {})))
    model = _renamed(model, files, umt5.original_name, "the umT5 encoder", **place)
    model.tie_weights()
    return umt5.UMT5Encoder(model, tokenizer)


def _renamed(
    module: Module,
    files: Sequence[Path],
    published: Callable[[str], str],
    what: str,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> Module:
    """Fill a module on the meta device with tensors that have the module's shapes under other names."""
    source = TensorFiles(files)
    names = {name: published(name) for name in module.state_dict()}
    _check(source, {names[name]: tuple(value.shape) for name, value in module.state_dict().items()}, what)
    for ours, theirs in names.items():
        _assign(module, ours, source[theirs].to(device, dtype))
    return module.eval().requires_grad_(False)


def _check(source: TensorFiles, wanted: dict[str, tuple[int, ...]], what: str) -> None:
    if complaint := misfits(source.shapes, wanted):
        raise ValueError(f"the tensors of {source} do not fit {what}: {complaint}")


def _interval_banks(source: TensorFiles) -> dict[str, str]:
    """For the weight and the bias of fused heads, which tensor of the file holds them one per interval."""
    banks = {}
    for kind, axes in (("weight", 3), ("bias", 2)):
        for form in BANK_NAMES:
            name = form.format(kind)
            if len(source.shapes.get(name, ())) == axes:
                banks[f"head.block_{kind}"] = name
    return banks


def _assign(module: torch.nn.Module, name: str, value: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(path), leaf, torch.nn.Parameter(value, requires_grad=False))


def _open(file: Path):
    if Path(file).suffix in PICKLES:
        raise ValueError(
            f"{file} is a pickle, which can run any code when it is read; give the weights as .safetensors, which "
            "the publisher offers or safetensors.torch.save_file writes"
        )
    try:
        return safe_open(file, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{file} is not a whole safetensors file ({error}); copy it again") from error
