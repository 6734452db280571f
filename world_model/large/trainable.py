"""A large world in the form that the stages of training take: the twin of `world_model.world.World`.

It is one network with its compressor and, while it is distilled, its heads. Codec and caption encoder stay outside:
the recordings come encoded, and so do their captions (`captions`). Of a world of two experts most stages train one,
over the noise levels that it serves, and the other is `carried` along; `pair` has both for stages that need both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from world_model.config import WorldConfig
from world_model.large import masks
from world_model.large.captions import KnownCaptions
from world_model.large.carried import PLAIN, carry, read_heads, reshaped, write_heads
from world_model.large.compressor import TEMPORAL_STRIDE
from world_model.large.config import SINGLE
from world_model.large.expert import Expert
from world_model.large.few_step import CALLS, INTERVALS, SHIFT, calls_of, intervals_of
from world_model.large.folder import LargeWorld, link_companions, load_large_world, read_large_world, write_experts
from world_model.parallel_decoder import ParallelDecoder
from world_model.transformer.masks import Layout

PUBLISHED_BLOCKS = tuple(call.end - call.start for call in CALLS)
LAST_LAYERS = "transformer.head.", "parallel_decoder."


class Trainable(nn.Module):
    """What one expert or all of a large world have in common in training.

    ``config`` is the `WorldConfig` inside the folder's configuration; ``path`` is the folder that it was opened from,
    which its saved copies share the codec and the caption encoder with.
    """

    layouts = masks
    experts: Mapping[str, TrainableWorld]  # those that are here, by name

    def __init__(self, large: LargeWorld, path: Path | None) -> None:
        super().__init__()
        self._large, self.path = large, path
        self.config: WorldConfig = large.config.world
        self.text = KnownCaptions([], large.config.text_tokens, self.config.text.width)

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.config.name

    @property
    def large(self) -> LargeWorld:
        """The folder's configuration, with ``config`` as it is now."""
        return replace(self._large, config=replace(self._large.config, world=self.config))

    def shares_codec(self, other: Trainable) -> bool:
        """Whether another world's latents mean the same: those of one codec on disk."""
        return (self.path / "vae").resolve() == (other.path / "vae").resolve()

    def know(self, captions: KnownCaptions) -> None:
        """Read captions by heart from now on."""
        for world in (self, *self.experts.values()):
            world.text = captions

    def as_variant(self, variant: str) -> Trainable:
        """The same networks in a world that generates as another variant of `folder.VARIANTS` does."""
        for world in (self, *self.experts.values()):
            world._large = replace(world._large, variant=variant)
        return self

    def save(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Write the world as a folder that `checkpoint.load_world` opens, linked to this one's companions; an expert
        that is not here stays what it is in this one's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.path is not None:
            link_companions(folder, self.path)
        large, tensors = self.large, {}
        for name, expert in self.experts.items():
            if expert.parallel_decoder is not None:
                write_heads(folder, name, expert.heads(dtype))
            tensors[name] = expert.released(dtype)
        for name in set(large.config.experts) - set(self.experts):
            if read_large_world(self.path).few_step == large.few_step:
                carry(name, self.path, folder)
            else:
                tensors[name] = reshaped(name, self.path, folder, large.few_step)
        write_experts(folder, large, tensors, dtype=None)


class TrainableWorld(Trainable):
    """The network of one expert, for the noise levels that it serves: for all of them where it is the only one."""

    def __init__(
        self, large: LargeWorld, network: Expert | TrainableWorld, path: Path | None = None, expert: str = SINGLE
    ) -> None:
        super().__init__(large, path)
        self.expert = expert
        self.transformer, self.compressor = network.transformer, network.compressor
        self.transformer.recompute = True
        own = range(*intervals_of(expert))
        self.parallel_decoder = ParallelDecoder(self.config, own) if self.config.flow.blocks else None

    @property
    def experts(self) -> Mapping[str, TrainableWorld]:
        """This one."""
        return {self.expert: self}

    @property
    def noise_range(self) -> tuple[float, float]:
        """The lowest and the highest noise level that the network is trained at."""
        return self._large.config.noise_range(self.expert)

    def expert_at(self, level: float) -> str:
        """The expert that is asked at a noise level: this one."""
        return self.expert

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
            ValueError: when the blocks do not cover the published noise grid, which rollouts go by; and for other ones
                than the published, where several experts share them.
        """
        if blocks and sum(blocks) != INTERVALS:
            raise ValueError(
                f"the blocks {list(blocks)} cover {sum(blocks)} intervals of noise, and large worlds have {INTERVALS}; "
                "give --set few_step.blocks=[28,28,36,36] or others of that sum"
            )
        if blocks and self.expert != SINGLE and blocks != PUBLISHED_BLOCKS:
            raise ValueError(
                f"the blocks {list(blocks)} are not those that two experts share, {list(PUBLISHED_BLOCKS)}; leave "
                "few_step.blocks as it is"
            )
        flow = replace(self.config.flow, blocks=blocks, fused=False)
        if blocks:
            flow = replace(flow, sampling_steps=len(blocks), shift=SHIFT)
        large = replace(self.large, config=replace(self.large.config, world=replace(self.config, flow=flow)))
        world = TrainableWorld(large, self, self.path, self.expert)
        world.text = self.text
        if blocks:
            for heads, own in zip(world.parallel_decoder.parameters(), self.transformer.head.parameters(), strict=True):
                heads.data = own.detach().expand_as(heads).clone()
        return world.train(self.training)

    @torch.no_grad()
    def fused_head(self) -> dict[str, Tensor]:
        """The heads as a few-step `Expert` has them, one pair for each of its evaluations of a chunk."""
        calls = [call for call in calls_of(self.large.config) if call.expert == self.expert]
        pairs = [self.parallel_decoder.block(call.start, call.end) for call in calls]
        return {name: torch.stack(parts) for name, parts in zip(PLAIN, zip(*pairs, strict=True), strict=True)}

    def heads(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """What a distilled network goes on learning with: its heads for each interval, and its plain one."""
        return {name: value.to(dtype) for name, value in self.state_dict().items() if name.startswith(LAST_LAYERS)}

    def released(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        """The tensors of the `Expert` that this network is to those who generate."""
        tensors = self.state_dict()
        if self.parallel_decoder is not None:
            tensors = {name: value for name, value in tensors.items() if not name.startswith(LAST_LAYERS)}
            tensors |= self.fused_head()
        for name, value in tensors.items():
            yield name, value.to(dtype)


def open_trainable(folder: Path, expert: str = SINGLE) -> TrainableWorld:
    """One expert of a large world's folder, float32 on the CPU.

    Raises:
        FileNotFoundError: when a part of it is not there.
        ValueError: for damaged files, and for an expert that the world does not have.
    """
    large = read_large_world(folder)
    if expert not in large.config.experts:
        raise ValueError(
            f"the large world {large.config.world.name!r} has no expert {expert!r}; choose "
            f"{' or '.join(large.config.experts)}"
        )
    network = load_large_world(folder, [expert], torch.float32)[expert]
    if not large.few_step:
        return TrainableWorld(large, network, folder, expert)
    heads = {name: value.float() for name, value in read_heads(folder, expert).items()}
    plain = heads[PLAIN[0]]
    network.transformer.head = nn.Linear(plain.shape[1], plain.shape[0])
    world = TrainableWorld(large, network, folder, expert)
    world.load_state_dict(world.state_dict() | heads)
    return world.requires_grad_(False)
