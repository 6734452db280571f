"""A large world behind the interface of `world_model.rollout.WorldStream`, so that an environment takes either.

Each slot is a rollout of its own, run one after the other: a chunk of one fills a GPU already, and slots that began at
different times have memories of different lengths. A slot is plain data that no step changes in place, so a snapshot is
a handful of references.

The first chunk is shorter than the others, since its first latent is the start picture, one frame: 13 frames of 16, for
chunks of 4 latents. A step always gives as many frames as the others; that picture stands in front until they are
enough. No control leads to it, so the first row of the first chunk is idle, as in the published scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from world_model.codec import to_unit
from world_model.config import WorldConfig
from world_model.controls import PERSPECTIVE, StructuredCaption
from world_model.large.compressor import TEMPORAL_STRIDE
from world_model.large.conditioning import SHRINK, Picture, shrunk, small_video, start_picture, video_uint8
from world_model.large.config import MAX_LATENTS
from world_model.large.generate import draw_noise, make_chunk, start_rollout
from world_model.large.rollout import RolloutState
from world_model.slot_checks import (
    action_batch,
    changed_captions,
    check_begun,
    check_lengths,
    check_slots,
    check_stream,
    frames_tensor,
    generator_at,
    start_rows,
)

if TYPE_CHECKING:
    from world_model.large.world import LoadedWorld

KEPT_CAPTIONS = 64  # whose tokens are remembered


@dataclass(frozen=True)
class Slot:
    """One rollout."""

    caption: StructuredCaption
    randomness: Tensor  # state of its generator
    video: Picture  # gives the conditioning of the latents to come
    small: Picture  # and that of the small video
    past: RolloutState
    newest: Tensor  # [n, C, h, w]
    decoder: list | None = None
    encoder: list | None = None  # of the small video

    @property
    def count(self) -> int:
        """Latents so far."""
        return 0 if self.past.history is None else self.past.history.latents.shape[1]


@dataclass(frozen=True)
class LargeSnapshot:
    """The exact state of a stream; opaque, restorable any number of times into a stream of as many slots."""

    config: WorldConfig
    slots: tuple[Slot | None, ...]


class LargeStream:
    """``num_slots`` rollouts through one large world, each with its own random generator.

    ``sampling_steps`` are the network evaluations of a chunk of a world that was not distilled; ``temperature`` scales
    all noise.
    """

    def __init__(
        self, world: LoadedWorld, num_slots: int, *, sampling_steps: int | None = None, temperature: float = 1.0
    ) -> None:
        check_stream(num_slots, temperature)
        if world.large.few_step and sampling_steps not in (None, world.evaluations):
            raise ValueError(
                f"sampling_steps is {sampling_steps} and this world was distilled to {world.evaluations} network "
                f"evaluations; leave it out or give {world.evaluations}"
            )
        if sampling_steps is not None and sampling_steps < 1:
            raise ValueError(f"sampling_steps is {sampling_steps}; a chunk needs at least 1 network evaluation")
        self.world, self.config = world, world.config
        self.num_slots, self.temperature = num_slots, float(temperature)
        self.latents_per_chunk = self.config.chunk_latents
        self.frames_per_latent = self.config.codec.temporal_factor
        self.frame_shape = (self.config.video.height, self.config.video.width, 3)
        self._steps = world.evaluations if sampling_steps is None else sampling_steps
        self._tokens = lru_cache(KEPT_CAPTIONS)(self._encode)
        self._slots: list[Slot | None] = [None] * num_slots
        _, height, width = self.config.latent_shape
        none = torch.zeros(1, 0, world.large.config.condition_channels, height, width, device=world.device)
        small = none[..., : height // SHRINK, : width // SHRINK]
        with torch.no_grad():
            self._rollout = start_rollout(world.experts, world.large.variant, self._tokens, none, small)
        self._blank = self._rollout.state

    @property
    def latents(self) -> Tensor:
        """The newest chunk ``[B, n, C, h, w]``, normalised latents; zeros before the first one."""
        none = torch.zeros(self.latents_per_chunk, *self.config.latent_shape, device=self.world.device)
        return torch.stack([none if slot is None else slot.newest for slot in self._slots])

    @property
    def captions(self) -> list[StructuredCaption | None]:
        """The caption in force in each slot."""
        return [None if slot is None else slot.caption for slot in self._slots]

    @property
    def steps_taken(self) -> Tensor:
        """Latents of each slot since its reset: int64 ``[B]``."""
        return torch.tensor([0 if slot is None else slot.count for slot in self._slots])

    @torch.no_grad()
    def reset(
        self,
        slots: Sequence[int],
        starts: Sequence[np.ndarray | Tensor | None],
        captions: Sequence[StructuredCaption],
        seeds: Sequence[int],
        actions: Sequence[np.ndarray | Tensor | None] | None = None,
    ) -> Tensor:
        """Start the given slots anew and return their newest frames, uint8 ``[len(slots), H, W, 3]``.

        A start is one picture, uint8 ``[1, H, W, 3]``, or 1 + a multiple of a chunk's frames, which become the slot's
        history but for the first four; or None: then a first chunk is generated from the caption alone, which public
        text-to-video weights can and the published weights never learned. ``actions`` are as in `WorldStream.reset`.

        Raises:
            ValueError: for a slot that does not exist or a start of the wrong shape or type; nothing is changed.
        """
        actions = [None] * len(slots) if actions is None else actions
        check_lengths(slots, starts, captions, seeds, actions)
        check_slots(slots, self.num_slots)
        starts = [self._check_start(start) for start in starts]
        rows = [
            start_rows(given, 1 if start is None else 1 + (len(start) - 1) // self.frames_per_latent)
            for given, start in zip(actions, starts, strict=True)
        ]
        begun = [self._begin(*given) for given in zip(starts, captions, seeds, rows, strict=True)]
        for slot, (new, _) in zip(slots, begun, strict=True):
            self._slots[slot] = new
        return torch.stack([frame for _, frame in begun])

    @torch.no_grad()
    def step(self, actions: np.ndarray | Tensor) -> Tensor:
        """Generate one chunk in every slot under ``actions [B, n, 6]``: uint8 frames ``[B, n * r, H, W, 3]``.

        Raises:
            ValueError: for actions of another shape or with values that are not finite.
            RuntimeError: when a slot was never reset, or has as many latents as the model has positions for; nothing
                is changed.
        """
        actions = action_batch(actions, self.num_slots, self.latents_per_chunk)
        check_begun(self._slots)
        for index, slot in enumerate(self._slots):
            if slot.count + self.latents_per_chunk > MAX_LATENTS:
                raise RuntimeError(
                    f"slot {index} has {slot.count} latents and the model has positions for {MAX_LATENTS}; reset it "
                    f"(max_episode_steps={MAX_LATENTS // self.latents_per_chunk} does so in an environment)"
                )
        made = [self._advance(slot, rows) for slot, rows in zip(self._slots, actions, strict=True)]
        self._slots = [slot for slot, _ in made]
        return torch.stack([frames for _, frames in made])

    def set_caption(
        self, slots: Sequence[int], scene: str | None = None, character: str | None = None, event: str | None = None
    ) -> None:
        """Exchange the given fields in the given slots, from the next chunk on; None leaves a field as it is."""
        fields = {"scene": scene, "character": character, "event": event}
        for slot, caption in changed_captions(self.captions, slots, **fields).items():
            self._slots[slot] = replace(self._slots[slot], caption=caption)

    def snapshot(self) -> LargeSnapshot:
        """The exact present state; the same controls after `restore` give the same frames."""
        return LargeSnapshot(self.config, tuple(self._slots))

    def restore(self, snapshot: LargeSnapshot) -> None:
        """Return to a snapshot of this stream or of another one of the same world and as many slots."""
        if len(snapshot.slots) != self.num_slots or snapshot.config != self.config:
            raise ValueError(
                f"the snapshot is of {len(snapshot.slots)} slots in {snapshot.config.name!r} and this stream has "
                f"{self.num_slots} in {self.config.name!r}; restore it into a stream of the same world and size"
            )
        self._slots = list(snapshot.slots)

    def _begin(self, start: Tensor | None, caption: StructuredCaption, seed: int, rows: Tensor) -> tuple[Slot, Tensor]:
        """A new slot and its newest frame, uint8."""
        video, n = self.config.video, self.latents_per_chunk
        if start is None:
            pixels = torch.zeros(3, video.height, video.width, device=self.world.device)
        else:
            if len(start) > 1:  # the first latent is one frame: without these, the frames make whole chunks
                start, rows = start[self.frames_per_latent :], rows[1:]
            pixels = start_picture(start[0].movedim(-1, 0).to(self.world.device), video.height, video.width)
        slot = Slot(
            caption=caption,
            randomness=torch.Generator().manual_seed(int(seed)).get_state(),
            video=Picture(pixels, start is not None),
            small=Picture(shrunk(pixels), start is not None),
            past=self._blank,
            newest=pixels.new_zeros(n, *self.config.latent_shape),
        )
        if start is None:
            slot, frames = self._advance(slot, rows.expand(n, -1))
            return slot, frames[-1]
        if len(start) > 1:
            latents, _ = self.world.codec.encode(to_unit(start)[None].to(self.world.device))
            for chunk, some in zip(latents.split(n, dim=1), rows.split(n), strict=True):
                slot, _ = self._advance(slot, some, chunk)
        return slot, start[-1].to(self.world.device)

    def _advance(self, slot: Slot, rows: Tensor, latents: Tensor | None = None) -> tuple[Slot, Tensor]:
        """The slot after one more chunk under rows ``[n, 6]``, generated unless its ``latents [1, n, C, h, w]`` are
        given, and the chunk's frames, uint8 ``[n * r, H, W, 3]``."""
        rollout, codec, n = self._rollout, self.world.codec, self.latents_per_chunk
        rollout.resume(slot.past)
        condition, video = slot.video.condition(codec, n)
        small_condition, small = slot.small.condition(codec, n // TEMPORAL_STRIDE)
        rollout.extend(condition, small_condition)
        if slot.count == 0:
            rows = rows.clone()
            rows[0, :PERSPECTIVE], rows[0, PERSPECTIVE + 1 :] = 0, 0
        rows, text = rows[None].to(self.world.device), self._tokens(slot.caption.text())
        generator = generator_at(slot.randomness)
        if latents is None:
            fresh = partial(self._noise, generator)
            latents = make_chunk(self.world.large.variant, self._steps, rollout, fresh(), rows, text, fresh)
        frames, decoder = codec.decode(latents, slot.decoder)
        small_latents, encoder = codec.encode(small_video(frames), slot.encoder)
        rollout.commit(latents, small_latents, rows, text)
        state = generator.get_state()
        slot = Slot(slot.caption, state, video, small, rollout.state, latents[0], decoder, encoder)
        pictures = video_uint8(frames[0]).movedim(1, -1)
        missing = n * self.frames_per_latent - len(pictures)
        return slot, torch.cat([pictures[:1].expand(missing, -1, -1, -1), pictures])

    def _noise(self, generator: torch.Generator) -> Tensor:
        noise = draw_noise(self.config.latent_shape, generator, self.world.device, self.latents_per_chunk)
        return self.temperature * noise

    def _encode(self, text: str) -> Tensor:
        """Tokens ``[1, L, X]`` of a caption's text."""
        return self.world.encode(text)[None].to(self.world.device)

    def _check_start(self, start: np.ndarray | Tensor | None) -> Tensor | None:
        """Frames ``[F, H, W, 3]`` of a start."""
        if start is None:
            return None
        start = frames_tensor(start)
        if start.ndim != 4 or start.dtype != torch.uint8 or tuple(start.shape[1:]) != self.frame_shape:
            raise ValueError(
                f"a start has the shape {tuple(start.shape)} and type {start.dtype}; give uint8 frames "
                f"{('F', *self.frame_shape)}, or None"
            )
        chunk = self.latents_per_chunk * self.frames_per_latent
        if len(start) < 1 or (len(start) - 1) % chunk:
            raise ValueError(f"a start has {len(start)} frames; give 1 + a multiple of {chunk}, a chunk's frames")
        return start
