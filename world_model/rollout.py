"""WorldStream: batched streaming generation. Controls go in, frames come out, memory stays between the two.

Every step denoises one chunk for all slots in the same batch and then *commits* it: the finished chunk is decoded,
run through the network once more at noise level 0, and its keys and values become the newest part of the context;
when enough latents have gathered they are compressed into a slot. Nothing is ever recomputed, so the cost of a step
does not depend on how many steps came before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from world_model.chunk import ChunkGenerator, Past
from world_model.codec import to_uint8, to_unit
from world_model.controls import StructuredCaption
from world_model.sampling import Sampler, block_euler, evaluations_of
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
from world_model.text import field_texts
from world_model.world import World

BEGIN_TOGETHER = 4  # slots; more would be idle in most resets


@dataclass(frozen=True)
class Snapshot:
    """The exact state of a stream; opaque, restorable any number of times into a stream of as many slots."""

    past: Past
    newest: Tensor
    captions: tuple[StructuredCaption | None, ...]
    generators: tuple[Tensor | None, ...]


class WorldStream:
    """``num_slots`` rollouts through one world.

    Each slot has its own random generator, so what one slot shows depends on its start, its seed and its controls
    alone. Slots begin in groups of one size for the same reason: rounding differs between batches of other sizes.
    """

    def __init__(
        self,
        world: World,
        num_slots: int,
        *,
        sampling_steps: int | None = None,
        temperature: float = 1.0,
        sampler: Sampler = block_euler,
    ) -> None:
        check_stream(num_slots, temperature)
        self.world = world.eval()
        self._chunks = ChunkGenerator(world)
        self.config = world.config
        self.num_slots = num_slots
        self.temperature = float(temperature)
        self.latents_per_chunk = self.config.chunk_latents
        self.frames_per_latent = self.config.codec.temporal_factor
        self.frame_shape = (self.config.video.height, self.config.video.width, 3)
        self.evaluations = evaluations_of(world, sampling_steps)
        self._sampler = sampler
        self.captions: list[StructuredCaption | None] = [None] * num_slots
        self._generators: list[torch.Generator | None] = [None] * num_slots
        self._texts: dict[str, Tensor] = {}
        with torch.inference_mode():
            self._past, self._blank = self._chunks.empty(num_slots), self._chunks.empty(min(BEGIN_TOGETHER, num_slots))
            self._newest = self._past.latents.new_zeros(num_slots, self.latents_per_chunk, *self.config.latent_shape)

    @property
    def latents(self) -> Tensor:
        """The newest chunk ``[B, n, C, h, w]``, normalised latents."""
        return self._newest

    @property
    def context_tokens(self) -> Tensor:
        """Tokens of memory that the next chunk of each slot sees: int64 ``[B]``."""
        return self._past.cache.visible_tokens()

    @torch.inference_mode()
    def exchange_memories(self, order: Sequence[int]) -> None:
        """Give slot ``i`` the compressed memory of slot ``order[i]``: a control that shows what the memory is worth.

        Raises:
            ValueError: when ``order`` does not name an existing slot for each slot; nothing is changed.
            RuntimeError: when a slot was never reset.
        """
        order = list(order)
        if len(order) != self.num_slots or not all(isinstance(slot, int) for slot in order):
            raise ValueError(
                f"the order {order} does not name a slot for each of {self.num_slots}; give as many numbers"
            )
        check_slots(order, self.num_slots)
        check_begun(self._generators)
        self._past.cache.exchange_slots(torch.tensor(order, device=self.world.device))

    @property
    def steps_taken(self) -> Tensor:
        """Latents that each slot has seen since its reset, start included: int64 ``[B]``."""
        return self._past.count

    @torch.inference_mode()
    def reset(
        self,
        slots: Sequence[int],
        starts: Sequence[np.ndarray | Tensor | None],
        captions: Sequence[StructuredCaption],
        seeds: Sequence[int],
        actions: Sequence[np.ndarray | Tensor | None] | None = None,
    ) -> Tensor:
        """Start the given slots anew and return their newest frames, uint8 ``[len(slots), H, W, 3]``.

        A start is uint8 frames ``[F, H, W, 3]`` with F = 1 + a multiple of the frames of a chunk, or normalised
        latents ``[T, C, h, w]``, or None: then the first picture, too, is generated, from the caption alone.
        ``actions`` are the rows ``[T, 6]`` that led to the start's latents (default: idle, first person).

        Raises:
            ValueError: for a slot that does not exist or a start of the wrong shape or type; nothing is changed.
        """
        actions = [None] * len(slots) if actions is None else actions
        check_lengths(slots, starts, captions, seeds, actions)
        prepared = [self._check_start(start) for start in starts]
        rows = [
            start_rows(given, 1 if start is None else len(start)).to(self.world.device)
            for given, start in zip(actions, prepared, strict=True)
        ]
        check_slots(slots, self.num_slots)
        frames: list[Tensor | None] = [None] * len(slots)
        for group in self._groups(prepared):
            generators = [torch.Generator().manual_seed(int(seeds[index])) for index in group]
            past, newest, newest_frames = self._begin(
                [prepared[index] for index in group],
                [captions[index] for index in group],
                torch.stack([rows[index] for index in group]),
                generators,
            )
            for row, index in enumerate(dict.fromkeys(group)):
                slot = slots[index]
                self._past.put_row(slot, past, row)
                self._newest[slot], frames[index] = newest[row], newest_frames[row]
                self.captions[slot], self._generators[slot] = captions[index], generators[row]
        return torch.stack(frames)

    @torch.inference_mode()
    def step(self, actions: np.ndarray | Tensor) -> Tensor:
        """Generate one chunk in every slot under ``actions [B, n, 6]``: uint8 frames ``[B, n * r, H, W, 3]``.

        Raises:
            ValueError: for actions of another shape or with values that are not finite.
            RuntimeError: when a slot was never reset.
        """
        actions = self._check_actions(actions)
        latents = self._denoise(self._past, self._generators, actions)
        frames, self._past.decoder = self.world.codec.decode(latents, self._past.decoder)
        self._chunks.commit(self._past, latents, frames, actions)
        self._newest = latents
        return to_uint8(frames)

    @torch.inference_mode()
    def observe(self, frames: np.ndarray | Tensor, actions: np.ndarray | Tensor) -> None:
        """Let given frames be the next chunk in every slot, as if they had been generated under ``actions [B, n, 6]``.

        ``frames`` are uint8 ``[B, n * r, H, W, 3]``. Costs a fraction of `step`, and no slot draws noise.

        Raises:
            ValueError: for frames or actions of another shape or type.
            RuntimeError: when a slot was never reset.
        """
        actions = self._check_actions(actions)
        frames = frames_tensor(frames)
        expected = (self.num_slots, self.latents_per_chunk * self.frames_per_latent, *self.frame_shape)
        if tuple(frames.shape) != expected or frames.dtype != torch.uint8:
            raise ValueError(
                f"the frames have the shape {tuple(frames.shape)} and type {frames.dtype}; give uint8 {expected}"
            )
        latents = self.world.codec.encode(to_unit(frames).to(self.world.device), started=True)
        decoded, self._past.decoder = self.world.codec.decode(latents, self._past.decoder)
        self._chunks.commit(self._past, latents, decoded, actions)
        self._newest = latents

    @torch.inference_mode()
    def set_caption(
        self, slots: Sequence[int], scene: str | None = None, character: str | None = None, event: str | None = None
    ) -> None:
        """Exchange the given fields in the given slots, from the next chunk on; None leaves a field as it is."""
        fields = {"scene": scene, "character": character, "event": event}
        for slot, caption in changed_captions(self.captions, slots, **fields).items():
            self.captions[slot] = caption
            self._past.caption[slot] = self._encode(caption)

    def snapshot(self) -> Snapshot:
        """The exact present state; the same controls after `restore` give the same frames."""
        states = tuple(None if g is None else g.get_state().clone() for g in self._generators)
        return Snapshot(self._past.clone(), self._newest.clone(), tuple(self.captions), states)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a snapshot of this stream or of another one of the same world and as many slots."""
        if len(snapshot.captions) != self.num_slots:
            raise ValueError(
                f"the snapshot has {len(snapshot.captions)} slots and this stream {self.num_slots}; "
                "restore it into a stream of the same size"
            )
        if snapshot.past.cache.config.memory != self.config.memory:
            raise ValueError(
                f"the snapshot's memory is {snapshot.past.cache.config.memory} and this stream's {self.config.memory}; "
                "restore it into a stream of a world with the same memory"
            )
        self._past, self._newest = snapshot.past.clone(), snapshot.newest.clone()
        self.captions = list(copy.copy(snapshot.captions))
        self._generators = [None if s is None else generator_at(s) for s in snapshot.generators]

    def _denoise(self, past: Past, generators: Sequence[torch.Generator], actions: Tensor) -> Tensor:
        """A chunk of latents ``[B, n, C, h, w]`` from each slot's own noise, under actions ``[B, n, 6]``."""
        count = actions.shape[1]

        def noise() -> Tensor:
            return torch.stack([self._noise(generator)[:count] for generator in generators])

        return self._chunks.denoise(past, noise(), actions, self.evaluations, self._sampler, noise)

    # Starting a slot.

    def _groups(self, starts: Sequence[Tensor | None]) -> Iterator[list[int]]:
        """Which starts begin together: such as are equally long. A group that is not full repeats its last one."""
        alike: dict[int, list[int]] = {}
        for index, start in enumerate(starts):
            alike.setdefault(0 if start is None else len(start), []).append(index)
        size = len(self._blank.count)
        for indices in alike.values():
            for first in range(0, len(indices), size):
                group = indices[first : first + size]
                yield group + group[-1:] * (size - len(group))

    def _begin(
        self,
        starts: Sequence[Tensor | None],
        captions: Sequence[StructuredCaption],
        rows: Tensor,
        generators: Sequence[torch.Generator],
    ) -> tuple[Past, Tensor, Tensor]:
        """The past of a group of new slots under ``rows [G, T, 6]``, their newest chunks of latents and their newest
        frames (uint8)."""
        past = self._blank.clone()
        past.caption[:] = torch.stack([self._encode(caption) for caption in captions])
        n = self.latents_per_chunk
        if starts[0] is None:
            latents = self._denoise(past, generators, rows[:, :1])
        else:
            latents = torch.stack(list(starts)).to(self.world.device)
        decoded, past.decoder = self.world.codec.decode(latents[:, :1], None)
        self._chunks.commit(past, latents[:, :1], decoded.expand(-1, self.frames_per_latent, -1, -1, -1), rows[:, :1])
        for first in range(1, latents.shape[1], n):
            chunk = latents[:, first : first + n]
            decoded, past.decoder = self.world.codec.decode(chunk, past.decoder)
            self._chunks.commit(past, chunk, decoded, rows[:, first : first + n])
        newest = torch.cat([latents[:, :1].expand(-1, n, -1, -1, -1), latents], dim=1)[:, -n:]
        return past, newest, to_uint8(decoded[:, -1])

    def _encode(self, caption: StructuredCaption) -> Tensor:
        """Caption tokens ``[L, text width]``; a field's text is encoded once and remembered."""
        parts = []
        for text in field_texts(caption):
            if text not in self._texts:
                if len(self._texts) >= 4096:  # enough for any bank of starts; bounds memory when users type for hours
                    self._texts.clear()
                self._texts[text] = self.world.text.encode([text])[0]
            parts.append(self._texts[text])
        return torch.cat(parts)

    def _noise(self, generator: torch.Generator) -> Tensor:
        """One slot's starting noise ``[n, C, h, w]``, drawn on the CPU so that it is the same on every device."""
        noise = torch.randn(self.latents_per_chunk, *self.config.latent_shape, generator=generator)
        return (noise * self.temperature).to(self.world.device)

    # Checks.

    def _check_actions(self, actions: np.ndarray | Tensor) -> Tensor:
        """Action rows ``[B, n, 6]`` for slots that all have begun."""
        actions = action_batch(actions, self.num_slots, self.latents_per_chunk)
        check_begun(self._generators)
        return actions.to(self.world.device)

    def _check_start(self, start: np.ndarray | Tensor | None) -> Tensor | None:
        """Latents ``[T, C, h, w]`` of a start."""
        if start is None:
            return None
        start = frames_tensor(start)
        if start.ndim == 4 and start.dtype == torch.uint8 and tuple(start.shape[1:]) == self.frame_shape:
            start = self.world.codec.encode(to_unit(start)[None].to(self.world.device))[0]
        elif not (start.ndim == 4 and start.is_floating_point() and tuple(start.shape[1:]) == self.config.latent_shape):
            raise ValueError(
                f"a start has the shape {tuple(start.shape)} and type {start.dtype}; give uint8 frames "
                f"{('F', *self.frame_shape)}, latents {('T', *self.config.latent_shape)} or None"
            )
        if len(start) < 1 or (len(start) - 1) % self.latents_per_chunk:
            raise ValueError(
                f"a start has {len(start)} latents; give 1 + a multiple of {self.latents_per_chunk}, a chunk's latents"
            )
        return start
