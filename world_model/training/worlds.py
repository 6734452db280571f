"""Worlds of both kinds, small and large, as training runs open, feed and save them; stages need not know which."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from world_model.checkpoint import find_world, is_large, load_world, save_world
from world_model.config import PRESETS, TrainingConfig
from world_model.data.joined import JoinedStore
from world_model.large.captions import KnownCaptions
from world_model.large.companions import open_codec, open_text
from world_model.large.config import LARGE_PRESETS, SINGLE
from world_model.large.folder import read_large_world
from world_model.large.pair import open_pair
from world_model.large.trainable import Trainable, open_trainable
from world_model.training.large_latents import LargeLatentStore
from world_model.training.latents import LatentStore
from world_model.world import World

AnyWorld = World | Trainable


def open_world(name: str | Path, expert: str | None = None) -> AnyWorld:
    """A world by name or folder, as `checkpoint.load_world` finds it, in the form that stages take; of a large world of
    two experts one, or both."""
    folder = find_world(name)
    if not is_large(folder):
        return load_world(folder)
    if expert is None and len(experts_of(folder)) > 1:
        return open_pair(folder)
    return open_trainable(folder, expert or SINGLE)


def experts_of(folder: Path) -> tuple[str, ...]:
    """The experts of the large world in a folder; none of another one."""
    return read_large_world(folder).config.experts if is_large(folder) else ()


def share_captions(teacher: AnyWorld, student: AnyWorld) -> None:
    """Let a large teacher know the captions that its student learned by heart; others read by themselves."""
    if isinstance(teacher, Trainable):
        teacher.know(student.text)


def save(world: AnyWorld, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a world as a folder that `checkpoint.load_world` opens."""
    if isinstance(world, Trainable):
        world.save(folder, dtype)
    else:
        save_world(world, folder, dtype)


def with_present_settings(world: AnyWorld) -> AnyWorld:
    """A world whose memory bounds, noise levels and curriculum are those of its preset now, if it has one; all that
    decides its weights' shapes stays. Of a large world only the curriculum can differ from its preset's."""
    name = world.config.name
    if isinstance(world, Trainable):
        if name in LARGE_PRESETS:
            world.config = replace(world.config, curriculum=LARGE_PRESETS[name].world.curriculum)
        return world
    if name not in PRESETS:
        return world
    present = PRESETS[name]
    world = world.with_memory(present.memory)
    distilled = {name: getattr(world.config.flow, name) for name in ("sampling_steps", "blocks", "fused")}
    flow = replace(present.flow, **distilled) if world.config.flow.blocks else present.flow
    world.config = replace(world.config, flow=flow, curriculum=present.curriculum)
    return world


def encoded(
    world: AnyWorld,
    store: JoinedStore,
    settings: TrainingConfig,
    cache: Path,
    clips: int | None = None,
    device: torch.device | None = None,
) -> LatentStore:
    """The recordings of a store, or the first ``clips`` of each part, encoded for a stage of a world; ``cache`` is a
    folder to keep that in. A large world learns the captions by heart, and ``device`` is where it encodes."""
    if not isinstance(world, Trainable):
        return LatentStore(store, world.codec, world.config, cache=cache, clips=clips)
    device = device or torch.device("cpu")
    codec = open_codec(world.path / "vae", device)
    latents = LargeLatentStore(store, codec, world.large, settings, cache, clips)
    del codec  # before the caption encoder needs the room
    tokens = caption_tokens(latents.captions, world.path, cache, device)
    world.know(KnownCaptions(tokens, world.large.config.text_tokens, world.config.text.width))
    return latents


@torch.inference_mode()
def caption_tokens(texts: list[str], folder: Path, cache: Path, device: torch.device) -> list[Tensor]:
    """Tokens ``[L, X]`` of each text by the caption encoder of a large world's folder, kept in ``cache``."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    file = cache / f"captions-{digest}.safetensors"
    if not file.exists():
        encode = open_text(folder / "text_encoder", folder / "tokenizer", device)
        tokens = {str(index): encode(text).cpu().contiguous() for index, text in enumerate(texts)}
        save_file(tokens, file.with_suffix(".tmp"))
        file.with_suffix(".tmp").replace(file)
    known = load_file(file)
    return [known[str(index)] for index in range(len(texts))]
