"""Stages of training on the meta device, where tensors have shapes and no numbers, and one step of theirs.

The networks and the step are the real ones. What would look at a number is replaced: every text of a batch counts as
another one, the masks of long sequences are not filled, and the codec of a large world gives latents and frames of
the right shapes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from world_model.config import TrainingConfig, WorldConfig
from world_model.controls import ACTION_DIM
from world_model.large.captions import KnownCaptions
from world_model.large.conditioning import FRAMES_PER_LATENT, chunk_frames
from world_model.large.config import LargeConfig
from world_model.large.expert import Expert
from world_model.large.folder import LargeWorld
from world_model.large.pair import TrainablePair
from world_model.large.plan import COMPUTE, FusedAttention
from world_model.large.trainable import Trainable, TrainableWorld
from world_model.training.clip_scores import PairScore
from world_model.training.few_step import FewStepStage
from world_model.training.frame_query import FrameQueryStage
from world_model.training.history import HistoryStage
from world_model.training.latents import FIELDS
from world_model.training.memory_stage import MemoryStage, Noisy
from world_model.training.objective import NetworkStage
from world_model.training.stable_forcing import StableForcingStage
from world_model.training.stages import ALL_EXPERTS
from world_model.training.worlds import AnyWorld
from world_model.transformer import VelocityTransformer
from world_model.transformer.masks import Layout
from world_model.undrawn import Undrawn
from world_model.world import World


def meta_stage(kind: type[NetworkStage], config: WorldConfig | LargeConfig, settings: TrainingConfig) -> NetworkStage:
    """A stage with these settings, without numbers or recordings."""
    with torch.device("meta"), Undrawn():
        world = kind.starts_from(world_with(kind, config, settings))
        teacher = (world_with(kind, config, settings),) if issubclass(kind, StableForcingStage) else ()
        stage = kind(world, None, settings, *teacher).train()
    for network in (part for part in stage.modules() if isinstance(part, VelocityTransformer)):
        network.blocks = nn.ModuleList(FusedBlock(block) for block in network.blocks)
    for world in (part for part in stage.modules() if isinstance(part, AnyWorld)):
        world.layouts = meta_layouts(world.layouts)
    if isinstance(config, LargeConfig) and isinstance(stage, StableForcingStage):
        stage.student.chunks._codec = ShapesCodec(config.world)
    return computing(stage)


def world_with(kind: type[NetworkStage], config: WorldConfig | LargeConfig, settings: TrainingConfig) -> AnyWorld:
    """A world whose curriculum has these settings; of two experts all, or the last, whose noise levels are the most."""
    large = isinstance(config, LargeConfig)
    world = config.world if large else config
    curriculum = replace(world.curriculum, **{kind.settings_name or kind.name: settings})
    world = replace(world, curriculum=curriculum)
    if not large:
        return World(world)
    config = replace(config, world=world)
    folder = LargeWorld(config, "base")
    experts = {name: TrainableWorld(folder, Expert(config), Path(), name) for name in config.experts}
    if len(experts) > 1 and kind.name in ALL_EXPERTS:
        return TrainablePair(folder, experts, Path())
    return experts[config.experts[-1]]


def computing(stage: NetworkStage) -> NetworkStage:
    """The stage with its networks in the precision of their computation, reading every text of a batch anew."""
    for part in stage.modules():
        if isinstance(part, World | TrainableWorld):
            for network in (part.transformer, part.compressor, part.text):
                network.to(COMPUTE)
        if isinstance(part, World):
            part.text.standardise.float()  # its statistics stay
        if isinstance(part, Trainable):
            part.text = AnyCaptions(part.text.length, part.config.text.width)
        if isinstance(part, PairScore):
            part._asked = partial(_last_expert, part)
        if isinstance(part, NetworkStage):
            part.encode_captions = partial(_encode_all, part)
    return stage


def meta_batch(stage: NetworkStage, device: str = "meta") -> dict[str, Tensor]:
    """A batch as the stage draws it, at its longest window, without what is in it; what it reads off as numbers is on
    the CPU and has them."""
    config, settings = stage.world.config, stage.config
    history, latents = _window(stage)
    channels, height, width = config.latent_shape
    small = height // config.memory.spatial_stride, width // config.memory.spatial_stride
    full, coarse, count = (latents, channels, height, width), (latents, channels, *small), settings.batch
    shapes = {"latents": full, "noise": full, "actions": (latents, ACTION_DIM), "levels": (latents,)}
    shapes |= {"coarse": coarse, "sink": full[1:], "sink_actions": (ACTION_DIM,)}  # of every window
    numbers = {"asked": torch.ones((), device=device), "first_target": torch.tensor(history)}
    if isinstance(stage, MemoryStage):
        shapes |= {"history_noise": full, "coarse_noise": coarse, "history_level": ()}
    if isinstance(stage, FrameQueryStage):
        numbers["queried"] = torch.arange(1, latents)[: settings.frames]
        shapes |= {"hidden": (latents,), "levels": numbers["queried"].shape}
    large = isinstance(stage.world, Trainable)
    texts, symbols = (1, 1) if large else (FIELDS, config.text.max_bytes)
    if large:
        extra = stage.world.large.config.condition_channels
        shapes |= {"condition": (latents, extra, height, width), "coarse_condition": (latents, extra, *small)}
    batch = {name: torch.zeros(count, *shape, device=device) for name, shape in shapes.items()}
    batch["codes"] = torch.zeros(count, texts, symbols, dtype=torch.int64, device=device)
    batch["active"] = torch.ones(count, latents, texts, dtype=torch.bool, device=device)
    if large:
        batch["given"] = torch.zeros(count, latents, dtype=torch.bool, device=device)
    if isinstance(stage, FewStepStage):
        batch |= {name: torch.zeros(count, latents, dtype=torch.int64, device=device) for name in ("start", "interval")}
    if isinstance(stage, StableForcingStage):
        numbers |= _of_rollout(stage, batch["latents"])
    return batch | numbers


def step(stage: NetworkStage, batch: dict[str, Tensor]) -> int:
    """One forward and backward pass; gives the most tokens that a block saw at once, those of a cache included."""
    seen = [0]

    def look(_: nn.Module, given: tuple[Any, ...]) -> None:
        context = given[4]
        seen.append(given[0].shape[1] if context is None else context.key.shape[2])

    networks = [part for part in stage.modules() if isinstance(part, VelocityTransformer)]
    handles = [network.blocks[0].register_forward_pre_hook(look) for network in networks]
    loss, _ = stage(batch)
    loss.backward()
    for handle in handles:
        handle.remove()
    return max(seen)


def meta_layouts(layouts: Any) -> SimpleNamespace:
    """The layouts of a kind of world, ``masks``, with masks on the meta device: filled ones are gigabytes."""

    def bare(make: Any, *given: Any) -> Layout:
        layout = make(*given)
        return layout if layout.allowed is None else replace(layout, allowed=layout.allowed.to("meta"))

    kinds = {
        name: partial(bare, getattr(layouts, name)) for name in ("teacher_forcing", "bidirectional", "frame_query")
    }
    return SimpleNamespace(chunk_of=layouts.chunk_of, first_of=layouts.first_of, **kinds)


class FusedBlock(nn.Module):
    """A block with `FusedAttention` even where it runs again: that is inside `backward`, which a mode around the step
    does not reach."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *given: Any) -> Any:
        with FusedAttention():
            return self.block(*given)


class AnyCaptions(KnownCaptions):
    """Tokens of no caption in particular."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__([], length, width)
        self.width = width

    def forward(self, codes: Tensor) -> Tensor:
        return torch.zeros(len(codes), self.length, self.width, device=codes.device)


class ShapesCodec:
    """A `StreamingCodec` that knows nothing but shapes."""

    def __init__(self, config: WorldConfig) -> None:
        self.factor, self.channels = config.codec.spatial_factor, config.codec.latent_channels

    def encode(self, frames: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        batch, count, _, height, width = frames.shape
        latents = (count + FRAMES_PER_LATENT - 1) // FRAMES_PER_LATENT
        return frames.new_zeros(batch, latents, self.channels, height // self.factor, width // self.factor), []

    def decode(self, latents: Tensor, state: list | None = None) -> tuple[Tensor, list]:
        batch, count, _, height, width = latents.shape
        frames = chunk_frames(count, first=state is None)
        return latents.new_zeros(batch, frames, 3, self.factor * height, self.factor * width), []


def _last_expert(score: PairScore, noisy: Noisy) -> HistoryStage:
    """`PairScore._asked`, where noise levels are not known."""
    return list(score.experts.values())[-1]


def _encode_all(stage: NetworkStage, codes: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """`objective.encode_captions` as if no text of a batch were there twice."""
    tokens = stage.world.text(codes.flatten(0, 1)).unflatten(0, codes.shape[:2])
    return tokens.flatten(1, 2).to(COMPUTE), active.repeat_interleave(tokens.shape[2], dim=2)


def _window(stage: NetworkStage) -> tuple[int, int]:
    """Latents of history and of all of the longest window that a stage draws."""
    settings, layouts, n = stage.config, stage.world.layouts, stage.world.config.chunk_latents
    if isinstance(stage, StableForcingStage):
        return settings.start, settings.window
    return layouts.first_of(layouts.chunk_of(settings.history, n), n), settings.window


def _of_rollout(stage: StableForcingStage, latents: Tensor) -> dict[str, Tensor]:
    """What a step draws besides its window when the student learns: each chunk learns at its last evaluation."""
    settings, count = stage.config, len(latents)
    evaluations = max(settings.evaluations)
    chunks = settings.clips * settings.frames // stage.world.config.chunk_latents
    levels = torch.zeros(settings.clips, count, device=latents.device)
    return {
        "fresh": latents.new_zeros(evaluations - 1, *latents.shape),
        "levels": levels,
        "fake_levels": levels.clone(),
        "level_noise": torch.zeros_like(latents),
        "fake_noise": torch.zeros_like(latents),
        "evaluations": torch.tensor(evaluations),
        "exits": torch.full((chunks,), evaluations - 1),
        "for_student": torch.tensor(True),
        "look": torch.tensor(False),
    }
