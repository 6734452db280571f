"""A large world in the form that the stages of training take: the twin of `world_model.world.World`.

It is one network with its compressor. Codec and caption encoder stay outside: the recordings come encoded, and so do
their captions (`captions`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from world_model.config import WorldConfig
from world_model.large import masks
from world_model.large.captions import KnownCaptions
from world_model.large.compressor import TEMPORAL_STRIDE
from world_model.large.config import SINGLE
from world_model.large.expert import Expert
from world_model.large.folder import LargeWorld, link_companions, load_large_world, read_large_world, write_experts
from world_model.transformer.masks import Layout


class TrainableWorld(nn.Module):
    """The network of a large world that one expert serves, for all noise levels.

    ``config`` is the `WorldConfig` inside the folder's configuration; ``path`` is the folder that it was opened from,
    which its saved copies share the codec and the caption encoder with.
    """

    layouts = masks
    parallel_decoder = None

    def __init__(self, large: LargeWorld, expert: Expert, path: Path | None = None) -> None:
        super().__init__()
        self._large, self.path = large, path
        self.config: WorldConfig = large.config.world
        self.transformer, self.compressor = expert.transformer, expert.compressor
        self.transformer.recompute = True
        self.text = KnownCaptions([], large.config.text_tokens, self.config.text.width)

    @property
    def large(self) -> LargeWorld:
        """The folder's configuration, with ``config`` as it is now."""
        return replace(self._large, config=replace(self._large.config, world=self.config))

    def compress(self, latents: Tensor, coarse: Tensor, layout: Layout) -> Tensor:
        """Memory tokens ``[B, N, D]`` of a layout's compressed frames from conditioned latents ``[B, T, C + K, h, w]``
        and those of the small video ``[B, T, C + K, h / 4, w / 4]``, each at the first latent of its frame."""
        tokens = self.transformer.embed_latents(coarse[:, layout.slot_latents])
        if not layout.slots:
            return tokens
        return tokens + self.compressor(latents[:, : TEMPORAL_STRIDE * len(layout.slots)])

    def with_blocks(self, blocks: tuple[int, ...]) -> TrainableWorld:
        """The world itself, which has no interval heads.

        Raises:
            ValueError: when it shall have some.
        """
        if blocks:
            raise ValueError(f"the large world {self.config.name!r} takes no interval heads in training yet")
        return self

    def as_variant(self, variant: str) -> TrainableWorld:
        """The same networks in a world that generates as another variant of `folder.VARIANTS` does."""
        self._large = replace(self._large, variant=variant)
        return self

    def save(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Write the world as a folder that `checkpoint.load_world` opens, linked to this one's companions."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.path is not None:
            link_companions(folder, self.path)
        write_experts(folder, self.large, {SINGLE: self.state_dict().items()}, dtype)


def open_trainable(folder: Path) -> TrainableWorld:
    """The network of a large world's folder, float32 on the CPU.

    Raises:
        FileNotFoundError: when a part of it is not there.
        ValueError: for damaged files, and for worlds that do not learn here.
    """
    large = read_large_world(folder)
    name = large.config.world.name
    if large.config.experts != (SINGLE,):
        raise ValueError(
            f"the large world {name!r} shares its noise levels between {len(large.config.experts)} experts, and only "
            "worlds of one can be trained; start from a preset such as wan2.2-5b"
        )
    if large.few_step:
        raise ValueError(f"the large world {name!r} was distilled, which no stage goes on from; start from one before")
    return TrainableWorld(large, load_large_world(folder, dtype=torch.float32)[SINGLE], folder)
