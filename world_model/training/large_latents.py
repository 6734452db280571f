"""Recordings as the stages of a large world read them: cut into videos that begin as a rollout does.

The first latent of a video is one frame, and the conditioning channels know that frame, the start picture. So a window
cannot begin in the middle of an encoded recording; recordings are cut into *takes* instead, each a video of its own,
and a window begins where its take does. The small video of the history is made chunk by chunk, as a rollout makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from world_model.codec import to_unit
from world_model.config import TrainingConfig
from world_model.controls import JUMP, LATERAL, LONGITUDINAL, PERSPECTIVE, PITCH, YAW, StructuredCaption
from world_model.data.clips import Clip
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore
from world_model.large.compressor import TEMPORAL_STRIDE
from world_model.large.conditioning import (
    FRAMES_PER_LATENT,
    StreamingCodec,
    chunk_frames,
    condition_volume,
    shrunk,
    small_video,
)
from world_model.large.folder import LargeWorld
from world_model.training.latents import EncodedClip, LatentStore, fingerprint, kept

PARTS = ("latents", "coarse", "condition", "coarse_condition")


@dataclass(frozen=True)
class LargeClip(EncodedClip):
    """One take; what belongs to the small video stands twice, at both latents of its frame, and a caption holds for a
    whole chunk."""

    condition: Tensor  # float16 [T, K, h, w], what the network is told of the start picture
    coarse_condition: Tensor  # float16 [T, K, h / 4, w / 4]


class LargeLatentStore(LatentStore):
    """The takes of a store, encoded, for a stage of ``settings``; ``captions`` are their distinct texts, the first of
    which has the number 1 in a window's ``codes [B, U, 1]``.

    Windows have the further tensors ``condition`` and ``coarse_condition`` of `LargeClip`, and ``given``, bool
    ``[B, T]``: the latents that a rollout does not make but begins with.

    Raises:
        ValueError: when the stage's clips do not split into chunks.
    """

    def __init__(
        self,
        store: JoinedStore,
        codec: nn.Module,
        large: LargeWorld,
        settings: TrainingConfig,
        cache: Path | None = None,
        clips: int | None = None,
    ) -> None:
        self.config, self.large = large.config.world, large
        n = self.config.chunk_latents
        if settings.frames % n:
            raise ValueError(
                f"clips of {settings.frames} latents do not split into chunks of {n}; give --set STAGE.frames=NUMBER "
                f"with a multiple of {n}"
            )
        self._index: dict[str, int] = {}
        self.clips: list[EncodedClip] = []
        most = settings.window // n * n
        for part in store.stores:
            count = len(part) if clips is None else min(clips, len(part))
            takes = [Take(k, *place) for k in range(count) for place in cut(part.length(k), most, n)]
            name = f"latents-{fingerprint(codec, part)}-{count}-{most}-{n}.safetensors"
            tensors = kept(cache and cache / name, partial(encode_takes, part, takes, codec, n))
            self.clips += [
                self._take(take.of(part), *(tensors[f"{name}.{k}"] for name in PARTS)) for k, take in enumerate(takes)
            ]
        self.texts = torch.arange(1, 1 + len(self._index))[:, None]

    @staticmethod
    def words(caption: StructuredCaption) -> list[str]:
        """A large world reads a caption as one text."""
        return [caption.text()]

    @property
    def captions(self) -> list[str]:
        """Every distinct text."""
        return list(self._index)

    def beginnings(self, clip: EncodedClip, latents: int) -> int:
        """A window begins where its take does."""
        return 1

    def batch_of(
        self, chosen: Sequence[tuple[LargeClip, int]], latents: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        batch = super().batch_of(chosen, latents, generator)
        given = torch.zeros(len(chosen), latents, dtype=torch.bool)
        given[:, 0] = self.large.config.clean_picture
        conditions = {
            name: torch.stack([getattr(clip, name)[:latents] for clip, _ in chosen]).float() for name in PARTS[2:]
        }
        return batch | conditions | {"given": given}

    def _take(
        self, clip: Clip, latents: Tensor, coarse: Tensor, condition: Tensor, coarse_condition: Tensor
    ) -> LargeClip:
        coarse, coarse_condition = (x.repeat_interleave(TEMPORAL_STRIDE, dim=0) for x in (coarse, coarse_condition))
        first = torch.arange(len(latents)) // self.config.chunk_latents * self.config.chunk_latents
        texts = self._texts_of(clip, len(latents), FRAMES_PER_LATENT)[first]
        actions = torch.from_numpy(latent_rows(clip.actions))
        return LargeClip(latents, coarse, actions, texts, condition, coarse_condition)


@dataclass(frozen=True)
class Take:
    """A part of a recording that is encoded as a video of its own."""

    clip: int
    first_frame: int
    latents: int

    def of(self, store: ClipStore) -> Clip:
        return store.window(self.clip, self.first_frame, chunk_frames(self.latents, first=True))


def cut(frames: int, most: int, chunk: int) -> Iterator[tuple[int, int]]:
    """First frames and latents of the takes of a recording: ``most`` latents, the last one as many whole chunks as are
    left."""
    for first in range(0, frames, FRAMES_PER_LATENT * most):
        latents = min(most, (frames - first + FRAMES_PER_LATENT - 1) // FRAMES_PER_LATENT)
        if latents >= chunk:
            yield first, latents // chunk * chunk


@torch.inference_mode()
def encode_takes(store: ClipStore, takes: Sequence[Take], codec: nn.Module, chunk: int) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of each of `PARTS` of each take, ``[T or T / 2, channels, h, w]``."""
    device = codec.latent_mean.device
    for index, take in enumerate(tqdm(takes, desc="encoding takes", unit="take")):
        frames = to_unit(torch.from_numpy(take.of(store).frames.copy())).to(device)
        with torch.autocast(device.type, torch.bfloat16):  # twice as fast; stored as float16 anyway
            parts = encode_take(frames, codec, chunk)
        yield from ((f"{name}.{index}", part) for name, part in zip(PARTS, parts, strict=True))


def encode_take(frames: Tensor, codec: StreamingCodec, chunk: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The `PARTS` of frames ``[F, 3, H, W]`` in [-1, 1] that fill chunks of ``chunk`` latents."""
    latents, coarse = [], []
    state = small_state = None
    done = 0
    while done < len(frames):
        piece = frames[None, done : done + chunk_frames(chunk, first=not done)]
        some, state = codec.encode(piece, state)
        few, small_state = codec.encode(small_video(piece), small_state)
        latents.append(some[0])
        coarse.append(few[0])
        done += piece.shape[1]
    count = sum(len(part) for part in latents)
    condition = condition_volume(codec, frames[0], count)[0]
    small_condition = condition_volume(codec, shrunk(frames[0]), count // TEMPORAL_STRIDE)[0]
    return torch.cat(latents), torch.cat(coarse), condition, small_condition


def latent_rows(rows: np.ndarray) -> np.ndarray:
    """One action row for each latent, ``[T, 6]``, from one for each frame, ``[4 T - 3, 6]``: turns add up, a movement
    is what most of the frames do, a jump is a jump of any of them, and the view is the last frame's."""
    groups = np.concatenate([np.repeat(rows[:1], FRAMES_PER_LATENT - 1, axis=0), rows])
    groups = groups.reshape(-1, FRAMES_PER_LATENT, rows.shape[1])
    merged = groups[:, -1].copy()
    merged[1:, [PITCH, YAW]] = groups[1:, :, [PITCH, YAW]].sum(axis=1)  # the first latent is one frame
    merged[:, [LONGITUDINAL, LATERAL]] = np.rint(groups[:, :, [LONGITUDINAL, LATERAL]].mean(axis=1))
    merged[:, PERSPECTIVE], merged[:, JUMP] = groups[:, -1, PERSPECTIVE], groups[:, :, JUMP].max(axis=1)
    return merged
