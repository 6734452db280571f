"""A large world in the form that the stages of training take: the twin of `world_model.world.World`.

It is one network with its compressor and, while it is distilled, its heads. Codec and caption encoder stay outside:
the recordings come encoded, and so do their captions (`captions`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from world_model.config import WorldConfig
from world_model.large import masks
from world_model.large.captions import KnownCaptions
from world_model.large.compressor import TEMPORAL_STRIDE
from world_model.large.config import SINGLE
from world_model.large.expert import Expert
from world_model.large.few_step import INTERVALS, SHIFT, calls_of
from world_model.large.folder import LargeWorld, link_companions, load_large_world, read_large_world, write_experts
from world_model.parallel_decoder import ParallelDecoder
from world_model.transformer.masks import Layout

HEADS = "heads.safetensors"  # the unfused heads of a distilled world, and the plain one: what training goes on from
PLAIN = ("transformer.head.weight", "transformer.head.bias")


class TrainableWorld(nn.Module):
    """The network of a large world that one expert serves, for all noise levels.

    ``config`` is the `WorldConfig` inside the folder's configuration; ``path`` is the folder that it was opened from,
    which its saved copies share the codec and the caption encoder with.
    """

    layouts = masks

    def __init__(self, large: LargeWorld, expert: Expert | TrainableWorld, path: Path | None = None) -> None:
        super().__init__()
        self._large, self.path = large, path
        self.config: WorldConfig = large.config.world
        self.transformer, self.compressor = expert.transformer, expert.compressor
        self.transformer.recompute = True
        self.text = KnownCaptions([], large.config.text_tokens, self.config.text.width)
        self.parallel_decoder = ParallelDecoder(self.config) if self.config.flow.blocks else None

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.config.name

    @property
    def large(self) -> LargeWorld:
        """The folder's configuration, with ``config`` as it is now."""
        return replace(self._large, config=replace(self._large.config, world=self.config))

    def shares_codec(self, other: TrainableWorld) -> bool:
        """Whether another world's latents mean the same: those of one codec on disk."""
        return (self.path / "vae").resolve() == (other.path / "vae").resolve()

    def compress(self, latents: Tensor, coarse: Tensor, layout: Layout) -> Tensor:
        """Memory tokens ``[B, N, D]`` of a layout's compressed frames from conditioned latents ``[B, T, C + K, h, w]``
        and those of the small video ``[B, T, C + K, h / 4, w / 4]``, each at the first latent of its frame."""
        tokens = self.transformer.embed_latents(coarse[:, layout.slot_latents])
        if not layout.slots:
            return tokens
        return tokens + self.compressor(latents[:, : TEMPORAL_STRIDE * len(layout.slots)])

    def with_blocks(self, blocks: tuple[int, ...]) -> TrainableWorld:
        """The same networks, weights shared, with new interval heads in these blocks, copies of the network's last
        layer, or with none for ``()``.

        Raises:
            ValueError: when the blocks do not cover the published noise grid, which rollouts go by.
        """
        if blocks and sum(blocks) != INTERVALS:
            raise ValueError(
                f"the blocks {list(blocks)} cover {sum(blocks)} intervals of noise, and large worlds have {INTERVALS}; "
                "give --set few_step.blocks=[28,28,36,36] or others of that sum"
            )
        flow = replace(self.config.flow, blocks=blocks, fused=False)
        if blocks:
            flow = replace(flow, sampling_steps=len(blocks), shift=SHIFT)
        large = replace(self.large, config=replace(self.large.config, world=replace(self.config, flow=flow)))
        world = TrainableWorld(large, self, self.path)
        world.text = self.text
        if blocks:
            for heads, own in zip(world.parallel_decoder.parameters(), self.transformer.head.parameters(), strict=True):
                heads.data = own.detach().expand_as(heads).clone()
        return world.train(self.training)

    @torch.no_grad()
    def fused_head(self) -> dict[str, Tensor]:
        """The heads as a few-step `Expert` has them, one pair for each evaluation of a chunk."""
        pairs = [self.parallel_decoder.block(call.start, call.end) for call in calls_of(self.large.config)]
        return {name: torch.stack(parts) for name, parts in zip(PLAIN, zip(*pairs, strict=True), strict=True)}

    def as_variant(self, variant: str) -> TrainableWorld:
        """The same networks in a world that generates as another variant of `folder.VARIANTS` does."""
        self._large = replace(self._large, variant=variant)
        return self

    def save(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Write the world as a folder that `checkpoint.load_world` opens, linked to this one's companions."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.path is not None:
            link_companions(folder, self.path)
        tensors = self.state_dict()
        if self.parallel_decoder is not None:
            kept = (*PLAIN, *(name for name in tensors if name.startswith("parallel_decoder.")))
            heads = {name: tensors.pop(name).to(dtype).contiguous() for name in kept}
            save_file(heads, folder / f"{HEADS}.tmp")
            os.replace(folder / f"{HEADS}.tmp", folder / HEADS)
            tensors |= self.fused_head()
        write_experts(folder, self.large, {SINGLE: tensors.items()}, dtype)


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
    expert = load_large_world(folder, dtype=torch.float32)[SINGLE]
    if not large.few_step:
        return TrainableWorld(large, expert, folder)
    if not (folder / HEADS).is_file():
        raise FileNotFoundError(f"{folder} has no {HEADS}, without which a distilled world cannot learn; copy it there")
    heads = {name: value.float() for name, value in load_file(folder / HEADS).items()}
    plain = heads["transformer.head.weight"]
    expert.transformer.head = nn.Linear(plain.shape[1], plain.shape[0])
    world = TrainableWorld(large, expert, folder)
    world.load_state_dict(world.state_dict() | heads)
    return world.requires_grad_(False)
