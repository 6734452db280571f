"""A world: the four networks of one configuration, and the stream that runs them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from world_model.codec import CausalCodec
from world_model.config import PRESETS, MemoryConfig, WorldConfig
from world_model.flow import ALL_LEVELS
from world_model.memory import MemoryCompressor, slot_windows
from world_model.parallel_decoder import ParallelDecoder, fused_heads
from world_model.sampling import Sampler, block_euler
from world_model.text import ByteEncoder
from world_model.transformer import VelocityTransformer, masks
from world_model.transformer.masks import Layout

if TYPE_CHECKING:
    from world_model.rollout import WorldStream


class World(nn.Module):
    """Codec, caption encoder, velocity network and memory compressor of one world; if it was distilled, its parallel
    decoder, too.

    ``path`` is the folder that it was loaded from, None for a world with random weights.
    """

    layouts = masks  # where chunks begin, and who sees whom in a training sequence
    noise_range = ALL_LEVELS  # that the network serves

    def __init__(self, config: WorldConfig, path: Path | None = None) -> None:
        super().__init__()
        self.config = config
        self.path = path
        self.codec = CausalCodec(config.codec)
        self.text = ByteEncoder(config.text)
        self.transformer = VelocityTransformer(config)
        self.compressor = MemoryCompressor(config)
        self.parallel_decoder = ParallelDecoder(config) if config.flow.blocks else None

    @classmethod
    def random(cls, preset: str | WorldConfig, seed: int = 0) -> World:
        """A world with random weights that depend on ``seed`` alone.

        Raises:
            ValueError: when there is no preset of that name.
        """
        if isinstance(preset, str):
            if preset not in PRESETS:
                raise ValueError(f"there is no preset {preset!r}; choose one of {', '.join(PRESETS)}")
            preset = PRESETS[preset]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(preset)

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.config.name

    @property
    def evaluations(self) -> int:
        """Network evaluations of a chunk, unless a stream is asked for another number."""
        return self.config.flow.sampling_steps

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.transformer.head.weight.device

    def shares_codec(self, other: World) -> bool:
        """Whether another world's latents mean the same."""
        theirs, ours = other.codec.state_dict(), self.codec.state_dict()
        return theirs.keys() == ours.keys() and all(torch.equal(theirs[name].cpu(), ours[name].cpu()) for name in ours)

    def compress(self, latents: Tensor, coarse: Tensor, layout: Layout) -> Tensor:
        """Memory tokens ``[B, N, D]`` of a layout's slots from latents ``[B, T, C, h, w]`` and their coarse views
        ``[B, T, C, h / s, w / s]``, each at the latent that its slot ends with."""
        seen = coarse[:, layout.slot_latents]
        if not layout.slots:
            return self.transformer.embed_latents(seen)
        windows = slot_windows(latents, self.config.memory.temporal_stride)[:, list(layout.slots)]
        return self.compressor(windows, seen, self.transformer)

    def with_memory(self, memory: MemoryConfig) -> World:
        """The same networks, weights shared, with other bounds on what the memory holds.

        Raises:
            ValueError: when ``memory`` compresses differently, which the weights do not fit.
        """
        bounds = {"adjacent_latents", "budget_slots", "max_age"}
        for name, value in vars(self.config.memory).items():
            if name not in bounds and getattr(memory, name) != value:
                raise ValueError(
                    f"memory.{name} is {getattr(memory, name)} and these weights were made for {value}; only "
                    f"{', '.join(sorted(bounds))} can differ"
                )
        world = copy.copy(self)
        world.config = replace(self.config, memory=memory)
        return world

    def with_blocks(self, blocks: tuple[int, ...]) -> World:
        """The same networks, weights shared, with a new parallel decoder of these blocks, or none for ``()``.

        Its heads are copies of the network's last layer, so each evaluation is the Euler steps through its block with
        the velocity found at their beginning: as many evaluations are an Euler solver of as many steps.
        """
        steps = len(blocks) or self.config.flow.sampling_steps
        config = replace(self.config, flow=replace(self.config.flow, blocks=blocks, fused=False, sampling_steps=steps))
        return self._with_heads(config, {name: x.expand(sum(blocks), *x.shape) for name, x in self._head().items()})

    def fused(self) -> World:
        """The same world with the heads of every block fused into one: smaller, and as good to generate with.

        Raises:
            ValueError: when the world was not distilled.
        """
        if self.parallel_decoder is None:
            raise ValueError(f"the world {self.name!r} has no parallel decoder to fuse; distil it first (few_step)")
        config = replace(self.config, flow=replace(self.config.flow, fused=True))
        return self._with_heads(config, fused_heads(self.parallel_decoder))

    def _head(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach() for name, parameter in self.transformer.head.named_parameters()}

    def _with_heads(self, config: WorldConfig, heads: dict[str, torch.Tensor]) -> World:
        with torch.device("meta"):
            world = World(config, self.path)
        state = {name: value for name, value in self.state_dict().items() if not name.startswith("parallel_decoder.")}
        if config.flow.blocks:
            state |= {f"parallel_decoder.{name}": value.clone() for name, value in heads.items()}
        world.load_state_dict(state, assign=True)
        return world.train(self.training)

    def stream(
        self,
        num_slots: int,
        *,
        sampling_steps: int | None = None,
        temperature: float = 1.0,
        sampler: Sampler = block_euler,
    ) -> WorldStream:
        """A stream of ``num_slots`` independent rollouts through this world, all in one batch.

        ``sampling_steps`` network evaluations make a chunk (default: the configuration's); ``temperature`` scales
        the noise that a chunk starts from; ``sampler`` says how one evaluation leads to the next (`sampling`).
        """
        from world_model.rollout import WorldStream

        return WorldStream(self, num_slots, sampling_steps=sampling_steps, temperature=temperature, sampler=sampler)
