"""Recordings as the later stages read them: every frame encoded once, captions as bytes, all in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from world_model.codec import CausalCodec, to_unit
from world_model.config import WorldConfig
from world_model.controls import ACTION_DIM, PERSPECTIVE
from world_model.data.clips import Clip
from world_model.data.joined import JoinedStore
from world_model.data.store import ClipStore
from world_model.memory import coarse_view
from world_model.text import field_texts, to_bytes

FRAMES_AT_ONCE = 64
FIELDS = 3


@dataclass(frozen=True)
class EncodedClip:
    """One clip of ``T`` latents."""

    latents: Tensor  # float16 [T, C, h, w]
    coarse: Tensor  # float16 [T, C, h / s, w / s], of the slot that would end with a latent
    actions: Tensor  # float32 [T, 6]
    texts: Tensor  # int64 [T, 3], which text of `LatentStore.texts` each caption field holds


class LatentStore:
    """The encoded clips of a store, and every distinct caption text once."""

    words = staticmethod(field_texts)  # the texts that a caption is read as

    def __init__(
        self,
        store: ClipStore | JoinedStore,
        codec: CausalCodec,
        config: WorldConfig,
        cache: Path | None = None,
        clips: int | None = None,
    ) -> None:
        """Encode ``store``, or the first ``clips`` of each store that it joins; with a folder ``cache`` the latents are
        kept for the next time."""
        self.config = config
        self._index: dict[str, int] = {}
        self.clips: list[EncodedClip] = []
        for part in store.stores if isinstance(store, JoinedStore) else [store]:
            count = len(part) if clips is None else min(clips, len(part))
            tensors = self._encoded(part, count, codec, cache)
            self.clips += [
                self._encoded_clip(part[k], tensors[f"latents.{k}"], tensors[f"coarse.{k}"], codec.temporal_factor)
                for k in range(count)
            ]
        self.texts = to_bytes(list(self._index), config.text.max_bytes)

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def longest(self) -> int:
        """Latents of the longest clip, 0 when there is none."""
        return max((len(clip.latents) for clip in self.clips), default=0)

    def windows(self, count: int, latents: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw ``count`` windows of ``latents`` consecutive latents from clips that are long enough.

        Gives ``latents [B, T, C, h, w]``, ``coarse [B, T, C, h/s, w/s]``, ``actions [B, T, 6]`` (row 0 idle, since
        what led to it lies outside), ``codes [B, U, bytes]`` (the distinct caption texts of a window), ``active`` bool
        ``[B, T, U]`` (which of them are in force), ``sink [B, C, h, w]`` (a latent of the same clip, drawn from those
        up to the window's first) and ``sink_actions [B, 6]`` (its row, idle).
        """
        long_enough = [clip for clip in self.clips if len(clip.latents) >= latents]
        if not long_enough:
            raise ValueError(f"no clip has {latents} latents, the longest has {self.longest}; record longer clips")
        chosen = []
        for index in torch.randint(len(long_enough), (count,), generator=generator).tolist():
            clip = long_enough[index]
            room = self.beginnings(clip, latents)
            chosen.append((clip, int(torch.randint(room, (), generator=generator))))
        return self.batch_of(chosen, latents, generator)

    def beginnings(self, clip: EncodedClip, latents: int) -> int:
        """At how many latents of a clip, the first ones, a window of ``latents`` may begin."""
        return len(clip.latents) - latents + 1

    def batch_of(
        self, chosen: Sequence[tuple[EncodedClip, int]], latents: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """The windows of ``latents`` latents that begin at these places, as `windows` gives them."""
        actions = torch.stack([clip.actions[s : s + latents] for clip, s in chosen])
        idle = torch.zeros(ACTION_DIM)
        idle[PERSPECTIVE] = 1
        actions[:, 0] *= idle
        sinks = [(clip, int(torch.randint(s + 1, (), generator=generator))) for clip, s in chosen]
        codes, active = self._captions([clip.texts[s : s + latents] for clip, s in chosen])
        return {
            "latents": torch.stack([clip.latents[s : s + latents] for clip, s in chosen]).float(),
            "sink": torch.stack([clip.latents[s] for clip, s in sinks]).float(),
            "sink_actions": torch.stack([clip.actions[s] * idle for clip, s in sinks]),
            "coarse": torch.stack([clip.coarse[s : s + latents] for clip, s in chosen]).float(),
            "actions": actions,
            "codes": codes,
            "active": active,
        }

    def _captions(self, windows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Distinct texts of each window and when they hold, padded to the window that has most."""
        distinct = [window.unique() for window in windows]
        most = max(len(texts) for texts in distinct)
        codes = torch.zeros(len(windows), most, self.texts.shape[1], dtype=torch.int64)
        active = torch.zeros(len(windows), len(windows[0]), most, dtype=torch.bool)
        for row, (window, texts) in enumerate(zip(windows, distinct, strict=True)):
            codes[row, : len(texts)] = self.texts[texts]
            active[row, :, : len(texts)] = (window[:, :, None] == texts).any(1)
        return codes, active

    def _text(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    def _encoded_clip(self, clip: Clip, latents: Tensor, coarse: Tensor, frames_per_latent: int) -> EncodedClip:
        actions = torch.from_numpy(clip.actions[: len(latents)].copy())
        return EncodedClip(latents, coarse, actions, self._texts_of(clip, len(latents), frames_per_latent))

    def _texts_of(self, clip: Clip, latents: int, frames_per_latent: int) -> Tensor:
        """Which texts hold at each latent: int64 ``[T, texts of a caption]``."""
        texts = torch.empty(latents, len(self.words(clip.captions[0][1])), dtype=torch.int64)
        starts = [first for first, _ in clip.captions] + [len(clip.frames)]
        for (first, caption), end in zip(clip.captions, starts[1:], strict=True):
            held = slice(-(-first // frames_per_latent), -(-end // frames_per_latent))
            texts[held] = torch.tensor([self._text(text) for text in self.words(caption)])
        return texts

    def _encoded(self, store: ClipStore, count: int, codec: CausalCodec, cache: Path | None) -> dict[str, Tensor]:
        device = codec.latent_mean.device

        def encode() -> Iterator[tuple[str, Tensor]]:
            for index in tqdm(range(count), desc="encoding clips", unit="clip"):
                frames = to_unit(torch.from_numpy(store[index].frames.copy())).to(device)
                with torch.autocast(device.type, torch.bfloat16):  # twice as fast; stored as float16 anyway
                    latents, coarse = encode_clip(frames, codec, self.config)
                yield from ((f"latents.{index}", latents), (f"coarse.{index}", coarse))

        return kept(cache and cache / f"latents-{fingerprint(codec, store)}-{count}.safetensors", encode)


def kept(file: Path | None, encode: Callable[[], Iterable[tuple[str, Tensor]]]) -> dict[str, Tensor]:
    """The tensors of a file, or, where it is not there yet, those that ``encode`` makes, as float16, and it is written;
    without a file nothing is kept."""
    if file is not None and file.exists():
        return load_file(file)
    tensors = {name: value.half().cpu().contiguous() for name, value in encode()}
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, file.with_suffix(".tmp"))
        os.replace(file.with_suffix(".tmp"), file)
    return tensors


@torch.inference_mode()
def encode_clip(frames: Tensor, codec: CausalCodec, config: WorldConfig) -> tuple[Tensor, Tensor]:
    """Frames ``[F, 3, H, W]`` in [-1, 1] to latents ``[T, C, h, w]`` and coarse latents ``[T, C, h/s, w/s]``."""
    factor = codec.temporal_factor
    parts = [codec.encode(frames[None, : 1 + (FRAMES_AT_ONCE - 1) // factor * factor])[0]]
    done = 1 + (FRAMES_AT_ONCE - 1) // factor * factor
    while done < len(frames):
        parts.append(codec.encode(frames[None, done : done + FRAMES_AT_ONCE], started=True)[0])
        done += FRAMES_AT_ONCE
    per_slot = config.memory.temporal_stride * factor
    repeated = torch.cat([frames[:1]] * (per_slot - 1) + [frames])  # slots at the very start are never asked for
    groups = repeated.unfold(0, per_slot, factor).movedim(-1, 1)  # [T, l * r, 3, H, W]
    coarse = [coarse_view(part, config, codec) for part in groups.split(FRAMES_AT_ONCE)]
    return torch.cat(parts), torch.cat(coarse)


def fingerprint(codec: nn.Module, store: ClipStore) -> str:
    """What tells the latents of a store by a codec from others: 16 hexadecimal digits."""
    digest = hashlib.sha256("".join(entry.sha256 for entry in store.entries).encode())
    for name, value in codec.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:16]
