"""A small store whose frames follow the actions: a striped picture that yaw scrolls sideways."""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from world_model.checkpoint import save_world
from world_model.config import (
    TINY,
    CurriculumConfig,
    FewStepConfig,
    FlowConfig,
    StableForcingConfig,
    TrainingConfig,
    WorldConfig,
)
from world_model.controls import ACTION_DIM, PERSPECTIVE, YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore, write_manifest
from world_model.large import world as large_world
from world_model.large.base_models import NEW, diffusers_name
from world_model.large.config import LargeConfig
from world_model.large.denoise import evaluate
from world_model.large.folder import LargeWorld, convert
from world_model.large.names import PATCH, published_name, published_shape
from world_model.text import field_texts, to_bytes
from world_model.training import cli, large_rollout, worlds
from world_model.training.latents import EncodedClip, LatentStore
from world_model.training.stable_forcing import StableForcingStage
from world_model.world import World


def scrolling_clip(seed: int, length: int = 20, size: int = 32) -> Clip:
    rng = np.random.default_rng(seed)
    actions = np.zeros((length, 6), np.float32)
    actions[:, 4] = 1
    actions[1:, YAW] = rng.choice([-8.0, 0.0, 8.0], length - 1)
    picture = np.repeat(rng.integers(0, 256, (1, size // 4, 3)), 4, axis=1).repeat(size, axis=0).astype(np.uint8)
    offsets = np.cumsum(actions[:, YAW]).astype(int) // 2
    frames = np.stack([np.roll(picture, -offset, axis=1) for offset in offsets])
    captions = ((0, StructuredCaption("stripes")), (9, StructuredCaption("stripes", event="nothing much")))
    return Clip(frames, actions, captions)


@pytest.fixture(scope="session")
def stripes(tmp_path_factory) -> ClipStore:
    folder = tmp_path_factory.mktemp("stripes")
    entry = save_and_describe(folder)
    write_manifest(folder, [entry])
    return ClipStore(folder)


@pytest.fixture(scope="session")
def wide_stripes(tmp_path_factory) -> ClipStore:
    """Recordings for the large world of toy widths: 17 latents of 64x64 pixels, and two frames over."""
    folder = tmp_path_factory.mktemp("wide-stripes")
    write_manifest(folder, [save_and_describe(folder, clips=3, length=67, size=64)])
    return ClipStore(folder)


@pytest.fixture(scope="session")
def hasty_world(tmp_path_factory) -> Path:
    """A random world whose stages take small batches, and write a checkpoint after every step.

    Its name is no preset's, whose settings a stage would take in place of these.
    """
    small = {"batch": 2, "frames": 5, "history": 4, "warmup_steps": 2, "checkpoint_minutes": 0.0}
    special = {
        "few_step": {"blocks": (2, 1)},
        "stable_forcing": {"start": 3, "frames": 2, "clips": 2, "growth_steps": 4, "watch_steps": 2},
    }
    stages = {
        item.name: replace(getattr(TINY.curriculum, item.name), **(small | special.get(item.name, {})))
        for item in fields(TINY.curriculum)
    }
    config = replace(TINY, name="hasty", curriculum=replace(TINY.curriculum, **stages))
    folder = tmp_path_factory.mktemp("hasty")
    save_world(World.random(config), folder, torch.float32)
    return folder


class RandomStore(LatentStore):
    """Clips of random latents under random actions, whose event changes at the latent ``change``."""

    def __init__(self, config: WorldConfig, latents: int, change: int, clips: int = 2) -> None:
        generator = torch.Generator().manual_seed(0)
        self.config = config
        self.captions = [StructuredCaption("a hall", "a marine", event) for event in ("None", "it rains")]
        before, after = (field_texts(caption) for caption in self.captions)
        self.texts = to_bytes([*before, after[2]], config.text.max_bytes)
        self.change = change
        held = torch.tensor([0, 1, 2]).repeat(latents, 1)
        held[change:, 2] = 3
        channels, height, width = config.latent_shape
        small = channels, height // config.memory.spatial_stride, width // config.memory.spatial_stride
        self.clips = []
        for _ in range(clips):
            actions = 8 * torch.randn(latents, ACTION_DIM, generator=generator)
            actions[:, PERSPECTIVE] = 1
            tensors = (torch.randn(latents, *shape, generator=generator) for shape in (config.latent_shape, small))
            self.clips.append(EncodedClip(*tensors, actions, held))

    def caption(self, latent: int) -> StructuredCaption:
        """What is in force at a latent."""
        return self.captions[latent >= self.change]


@pytest.fixture(scope="session")
def random_store() -> Callable[..., RandomStore]:
    return RandomStore


@pytest.fixture(scope="session")
def forcing(distil) -> Callable[..., StableForcingStage]:
    """A stage of Stable Forcing on random recordings that are as long as its rollouts; the student is a distilled
    world, the teacher another one of the same codec."""

    def make(
        world: World, kind: type[StableForcingStage] = StableForcingStage, clips: int = 3, **settings
    ) -> StableForcingStage:
        n = world.config.chunk_latents
        given = {"batch": 2, "start": 1 + 2 * n, "frames": max(2, n), "clips": clips, "growth_steps": 0}
        config = StableForcingConfig(**given | settings)
        student, teacher = distil(copy.deepcopy(world)).requires_grad_(True), copy.deepcopy(world)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in teacher.transformer.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        total = config.start + clips * config.frames
        store = RandomStore(world.config, total, change=config.start + config.frames)
        return kind(student, store, config, teacher).eval()

    return make


class Codec(nn.Module):
    """The toy codec as a module, with what tells its device."""

    def __init__(self, blocks) -> None:
        super().__init__()
        self.encode, self.decode = blocks.encode, blocks.decode
        self.register_buffer("latent_mean", torch.zeros(1))


def tokens_of(text: str) -> torch.Tensor:
    """Tokens ``[L, 8]`` that tell texts apart."""
    return torch.randn(2 + len(text) % 2, 8, generator=torch.Generator().manual_seed(len(text)))


@pytest.fixture(scope="session")
def hasty() -> TrainingConfig:
    """How a stage of a large world is trained in a few steps."""
    return TrainingConfig(
        batch=2, frames=4, history=12, caption_rate=0.0, warmup_steps=1, learning_rate=1e-2, checkpoint_minutes=0.0
    )


@pytest.fixture
def base_folder(hasty, lively_experts, blocks, tmp_path, monkeypatch) -> Callable[..., Path]:
    """Makes a large world's folder of weights in the format of public video models that know no start picture; the
    codec and the caption encoder are stand-ins."""

    def make(config: LargeConfig, **few_step) -> Path:
        stages = {name: hasty for name in ("navigation", "frame_query", "history", "autoregressive")}
        stages["few_step"] = FewStepConfig(**vars(hasty) | {"guidance": 2.0} | few_step)
        forcing = {"start": 4, "frames": 4, "clips": 2, "growth_steps": 1, "evaluations": (2,), "ratio": 2}
        stages["stable_forcing"] = StableForcingConfig(
            batch=2, warmup_steps=1, learning_rate=1e-3, checkpoint_minutes=0.0, guidance=2.0, **forcing
        )
        curriculum, flow = replace(CurriculumConfig(), **stages), FlowConfig(shift=5.0, history_noise=0.0)
        large = LargeWorld(replace(config, world=replace(config.world, curriculum=curriculum, flow=flow)), "base")
        for number, expert in enumerate(lively_experts(large).values(), start=1):
            tensors = {}
            for ours, value in expert.state_dict().items():
                name = published_name(ours)
                if not re.fullmatch(NEW, name):
                    shape = published_shape(name, tuple(value.shape), config.world.transformer.patch)
                    tensors[diffusers_name(name)] = value.reshape(shape).clone()
            tensors[PATCH] = tensors[PATCH][:, : config.world.codec.latent_channels].clone()
            place = tmp_path / "wan" / ("transformer" if number == 1 else f"transformer_{number}")
            place.mkdir(parents=True)
            save_file(tensors, place / "model.safetensors")
        convert(tmp_path / "wan", tmp_path / "start", large, dtype=torch.float32)
        (tmp_path / "start" / "vae").mkdir()
        for module in (worlds, large_world, large_rollout):
            monkeypatch.setattr(module, "open_codec", lambda place, device: Codec(blocks))
        for module in (worlds, large_world):
            monkeypatch.setattr(module, "open_text", lambda *given: tokens_of)
        return tmp_path / "start"

    return make


@pytest.fixture
def stage_of(wide_stripes, tmp_path, hasty):
    """Makes a stage of a large world on recordings."""

    def make(kind, world, settings=hasty):
        latents = worlds.encoded(world, JoinedStore([wide_stripes.path]), settings, tmp_path / "cache")
        return kind(world, latents, settings).eval()

    return make


@pytest.fixture
def train(wide_stripes, tmp_path):
    """`wp2 train doom` with further words."""

    def run(*words: str) -> None:
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        common = ("--data", str(wide_stripes.path), "--out", str(tmp_path / "run"), "--device", "cpu")
        cli.main(parser.parse_args([*common, *words]))

    return run


@pytest.fixture(scope="session")
def base_velocity():
    """What the base model of a large world says of a window, without actions, memory or the picture's channels."""

    def ask(world, batch, levels):
        noise = levels[..., None, None, None]
        noisy = (1 - noise) * batch["latents"] + noise * batch["noise"]
        nothing = torch.cat([noisy, torch.zeros_like(batch["condition"])], dim=2)
        text = world.text(batch["codes"][:, 0])
        return evaluate(world, nothing, 1000 * levels, 0, None, text)[0]

    return ask


def save_and_describe(folder, clips: int = 6, **shape: int):
    from world_model.data.store import ShardWriter

    writer = ShardWriter(folder / "shard-00000.safetensors")
    for seed in range(clips):
        writer.add(scrolling_clip(seed, **shape))
    return writer.close()
