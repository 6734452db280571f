"""A large world with its networks, in the form that streams and environments take: the twin of `world_model.world`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from world_model.config import WorldConfig
from world_model.large.companions import open_codec, open_text
from world_model.large.conditioning import StreamingCodec
from world_model.large.expert import Expert
from world_model.large.few_step import calls_of
from world_model.large.folder import LargeWorld, load_large_world, read_large_world
from world_model.large.generate import STEPS, chunk_latents
from world_model.large.parallel import ALONE, Share, SplitStream
from world_model.large.stream import LargeStream
from world_model.large.swapping import SwappedExperts

PRECISIONS = ("bfloat16", "float32", "int8")  # of an expert's weights; with int8 the rest is bfloat16


class LoadedWorld:
    """Experts, codec and caption encoder of one large world.

    ``encode`` makes tokens ``[L, X]`` of a caption's text; ``path`` is the folder that the world was loaded from, and
    ``share`` the part of the experts that this process has of it.
    """

    def __init__(
        self,
        large: LargeWorld,
        experts: Mapping[str, Expert],
        codec: StreamingCodec,
        encode: Callable[[str], Tensor],
        device: str | torch.device = "cpu",
        path: Path | None = None,
        share: Share = ALONE,
    ) -> None:
        self.large, self.experts, self.codec, self.encode, self.path = large, experts, codec, encode, path
        self.device, self.share = torch.device(device), share
        world = large.config.world
        self.config: WorldConfig = replace(world, chunk_latents=chunk_latents(large.config, large.variant))

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.config.name

    @property
    def evaluations(self) -> int:
        """Network evaluations of a chunk, unless a stream is asked for another number; guided ones count once."""
        return len(calls_of(self.large.config)) if self.large.few_step else STEPS

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """The networks by name, as of a module."""
        yield from self.experts.items()
        if isinstance(self.codec, nn.Module):
            yield "codec", self.codec

    def stream(self, num_slots: int, *, sampling_steps: int | None = None, temperature: float = 1.0) -> LargeStream:
        """A stream of ``num_slots`` independent rollouts through this world.

        ``sampling_steps`` network evaluations make a chunk, where the world was not distilled; ``temperature`` scales
        the noise.
        """
        kind = LargeStream if self.share == ALONE else SplitStream
        return kind(self, num_slots, sampling_steps=sampling_steps, temperature=temperature)


def open_large_world(
    folder: Path,
    device: str | torch.device = "cpu",
    precision: str = "bfloat16",
    swap: bool = False,
    share: Share = ALONE,
) -> LoadedWorld:
    """A large world from its folder: the experts, and the codec and caption encoder that `link_companions` put there.

    ``precision``, ``swap`` and ``share`` are as in `open_experts`.

    Raises:
        FileNotFoundError: when a part of it is not there.
        ValueError: for a precision that there is not, and for damaged or unfitting files.
    """
    large, device = read_large_world(folder), torch.device(device)
    codec = open_codec(folder / "vae", device)
    encode = open_text(folder / "text_encoder", folder / "tokenizer", device)
    experts = open_experts(folder, device, precision, swap, share)
    return LoadedWorld(large, experts, codec, encode, device, folder, share)


def open_experts(
    folder: Path,
    device: str | torch.device = "cpu",
    precision: str = "bfloat16",
    swap: bool = False,
    share: Share = ALONE,
) -> Mapping[str, Expert]:
    """The experts of a folder in one of `PRECISIONS`; with ``swap`` only one of them is on ``device`` at a time.
    Of several processes, `parallel.joined`, each has its ``share`` of every block.

    Raises:
        FileNotFoundError, ValueError: as `load_large_world`; ValueError, too, for a precision that there is not.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"the precision is {precision!r}; choose one of {', '.join(PRECISIONS)}")
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    place = "cpu" if swap else device
    experts = load_large_world(folder, dtype=dtype, device=place, int8=precision == "int8", share=share)
    return SwappedExperts(experts, device) if swap else experts
