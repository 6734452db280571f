"""One chunk of a rollout: denoise it given the past, then make it part of the past.

`ChunkGenerator` is the streaming form of what `transformer.masks` describes for training. A finished chunk is run
through the network once more at noise level 0; its keys and values become the newest part of the context, and when
enough latents have gathered they are compressed into a slot. Nothing is ever recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from world_model.memory import coarse_view, slot_windows
from world_model.sampling import Evaluation, Noise, Sampler
from world_model.transformer import KeyValue
from world_model.transformer.cache import HistoryCache
from world_model.transformer.rotary import grid_positions
from world_model.world import World


@dataclass
class Past:
    """All that lasts between two chunks, for ``B`` slots."""

    cache: HistoryCache
    count: Tensor  # int64 [B], latents so far
    latents: Tensor  # [B, l, C, h, w], the newest ones
    frames: Tensor  # [B, l * r, 3, H, W], the newest ones, in [-1, 1]
    decoder: list[Tensor]
    caption: Tensor  # [B, L, text width]
    active: Tensor  # bool [B, L], which caption tokens are in force

    def clone(self) -> Past:
        copies = {name: getattr(self, name).clone() for name in self._tensors()}
        return Past(cache=self.cache.clone(), decoder=[part.clone() for part in self.decoder], **copies)

    def put_row(self, row: int, other: Past, index: int) -> None:
        """Take slot ``index`` of ``other`` as slot ``row``."""
        self.cache.put_row(row, other.cache, index)
        mine = [*(getattr(self, name) for name in self._tensors()), *self.decoder]
        theirs = [*(getattr(other, name) for name in self._tensors()), *other.decoder]
        for tensor, new in zip(mine, theirs, strict=True):
            tensor[row] = new[index]

    def _tensors(self) -> list[str]:
        return [item.name for item in fields(self) if item.name not in ("cache", "decoder")]


class View(NamedTuple):
    """What a chunk of a certain length sees of a past, the same for all of its network evaluations."""

    context: list[KeyValue]  # rotated; see `HistoryCache.context`
    mask: Tensor  # bool [B, 1, 1, context and own tokens]
    group: Tensor  # int64 [N], of the own tokens
    positions: Tensor  # float32 [N, 3]
    caption: Tensor
    active: Tensor  # bool [B, n, L]


class ChunkGenerator:
    """Denoising and committing for a batch of slots; it holds no state of its own, all of that is in `Past`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.config = world.config
        self.frames_per_latent = world.config.codec.temporal_factor

    def empty(self, batch: int) -> Past:
        """The past of slots that have seen nothing."""
        memory, video = self.config.memory, self.config.video
        like = self.world.transformer.head.weight
        decoder = self.world.codec.decode(like.new_zeros(batch, 1, *self.config.latent_shape), None)[1]
        pictures = memory.temporal_stride * self.frames_per_latent
        caption_tokens = 3 * self.config.text.tokens_per_field
        return Past(
            cache=HistoryCache.empty(self.config, batch, like),
            count=torch.zeros(batch, dtype=torch.int64, device=like.device),
            latents=like.new_zeros(batch, memory.temporal_stride, *self.config.latent_shape, dtype=torch.float32),
            frames=like.new_zeros(batch, pictures, 3, video.height, video.width, dtype=torch.float32),
            decoder=decoder,
            caption=like.new_zeros(batch, caption_tokens, self.config.text.width),
            active=torch.ones(batch, caption_tokens, dtype=torch.bool, device=like.device),
        )

    def view(self, past: Past, count: int) -> View:
        """What the next ``count`` latents see."""
        batch, (rows, columns) = len(past.count), self.config.token_grid
        tokens = count * rows * columns
        context, visible, _ = past.cache.context(past.count, tokens)
        mask = torch.cat([visible, visible.new_ones(batch, tokens)], dim=1)[:, None, None]
        active = past.active[:, None].expand(-1, count, -1)
        return View(context, mask, *self._own_places(count, past.count.device), past.caption, active)

    def predict(self, view: View, x: Tensor, actions: Tensor, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """One network evaluation of ``x [B, n, C, h, w]``: displacement and endpoint, see `sampling`."""
        network = self.world.transformer
        levels = x.new_full(x.shape[:2], evaluation.level)
        given = network.condition(view.group, levels, actions, view.caption, view.active)
        hidden, _ = network(network.embed_latents(x), given, view.positions, view.mask, view.context)
        return evaluation.predict(network, network.head_input(hidden, given.time), self.config.token_grid)

    def denoise(
        self,
        past: Past,
        x: Tensor,
        actions: Tensor,
        evaluations: Sequence[Evaluation],
        sampler: Sampler,
        fresh: Noise,
    ) -> Tensor:
        """From noise ``x [B, n, C, h, w]`` to clean latents, given the past; ``fresh`` draws more such noise."""
        view = self.view(past, x.shape[1])
        for evaluation in evaluations:
            x = sampler(evaluation, x, *self.predict(view, x, actions, evaluation), fresh)
        return x

    def commit(self, past: Past, latents: Tensor, frames: Tensor, actions: Tensor) -> None:
        """Make a finished chunk ``[B, n, C, h, w]`` with its frames ``[B, n * r, 3, H, W]`` part of the past.

        With one latent per chunk only every l-th chunk completes a slot. Slots are computed for all batch rows alike,
        complete or not, so that a row's numbers never depend on its neighbours' progress.
        """
        memory = self.config.memory
        count = latents.shape[1]
        slots = max(1, count // memory.temporal_stride) if memory.budget_slots else 0
        recent = torch.cat([past.latents, latents], dim=1)
        pictures = torch.cat([past.frames, frames], dim=1)
        offsets = memory.temporal_stride * torch.arange(slots - 1, -1, -1, device=past.count.device)
        ends = past.count[:, None] + count - 1 - offsets  # the last latent of each slot
        due = ends.remainder(memory.temporal_stride).eq(0)
        compressed = self._compress(recent, pictures, slots, bool(due.any()))

        new = self._run_clean(past, latents, compressed, ends, actions)
        small = self.config.memory_grid[0] * self.config.memory_grid[1]
        clean = _tokens(new, slots * small, None)
        if bool(past.count.eq(0).all()):  # the start picture, which slots have together
            past.cache.set_sink(clean)
        else:
            for index in range(slots):
                slot = _tokens(new, index * small, (index + 1) * small)
                past.cache.push_slot(slot, ends[:, index], due[:, index])
            past.cache.push_adjacent(clean, past.count[:, None] + torch.arange(count, device=past.count.device))
        past.latents, past.frames = recent[:, -memory.temporal_stride :], pictures[:, -past.frames.shape[1] :]
        past.count = past.count + count

    def _run_clean(
        self, past: Past, latents: Tensor, compressed: Tensor, ends: Tensor, actions: Tensor
    ) -> list[KeyValue]:
        """Keys and values of ``[compressed slots | clean latents]`` at noise level 0, with Fig. 3's visibility."""
        network = self.world.transformer
        batch, count = latents.shape[:2]
        slots, device = ends.shape[1], ends.device
        tokens = torch.cat([compressed, network.embed_latents(latents)], dim=1)
        context, visible, for_slots = past.cache.context(past.count, tokens.shape[1])
        small_tokens = compressed.shape[1]
        own_tokens = tokens.shape[1] - small_tokens

        group, positions = self._own_places(count, device)
        slot_group = torch.arange(slots, device=device).repeat_interleave(small_tokens // max(1, slots))
        group = torch.cat([slot_group, group + slots])
        slot_times = (ends - past.count[:, None]).float()
        positions = torch.cat(
            [grid_positions(slot_times, self.config.memory_grid), positions.expand(batch, -1, -1)], dim=1
        )
        own = torch.zeros(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=device)
        own[:small_tokens, :small_tokens] = slot_group[:, None].ge(slot_group[None])
        own[small_tokens:, small_tokens:] = True
        seen = [for_slots[:, None].expand(-1, small_tokens, -1), visible[:, None].expand(-1, own_tokens, -1)]
        mask = torch.cat([torch.cat(seen, dim=1), own.expand(batch, -1, -1)], dim=2)[:, None]

        rows = torch.cat([self._slot_rows(actions, slots), actions], dim=1)
        levels = latents.new_zeros(batch, slots + count)
        active = past.active[:, None].expand(-1, slots + count, -1)
        given = network.condition(group, levels, rows, past.caption, active)
        return network(tokens, given, positions, mask, context)[1]

    def _compress(self, recent: Tensor, pictures: Tensor, slots: int, wanted: bool) -> Tensor:
        """Memory tokens of the newest ``slots`` slots; zeros when no slot is complete in any row."""
        memory = self.config.memory
        batch = recent.shape[0]
        if not wanted or recent.shape[1] < slots * memory.temporal_stride + 1:
            size = slots * self.config.memory_grid[0] * self.config.memory_grid[1]
            like = self.world.transformer.head.weight
            return like.new_zeros(batch, size, self.config.transformer.width)
        per_slot = memory.temporal_stride * self.frames_per_latent
        groups = pictures[:, -slots * per_slot :].unflatten(1, (slots, per_slot)).flatten(0, 1)
        coarse = coarse_view(groups, self.config, self.world.codec).unflatten(0, (batch, slots))
        windows = slot_windows(recent[:, -(slots * memory.temporal_stride + 1) :], memory.temporal_stride)
        return self.world.compressor(windows, coarse, self.world.transformer)

    def _slot_rows(self, actions: Tensor, slots: int) -> Tensor:
        """The action rows ``[B, slots, 6]`` of the latents that end the slots."""
        stride = self.config.memory.temporal_stride
        return actions[:, -1:][:, :slots] if slots < 2 else actions[:, stride - 1 :: stride]

    def _own_places(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Group of every token, and positions relative to the chunk, of ``count`` latents."""
        rows, columns = self.config.token_grid
        group = torch.arange(count, device=device).repeat_interleave(rows * columns)
        return group, grid_positions(torch.arange(count, device=device).float(), self.config.token_grid)


def _tokens(new: list[KeyValue], start: int, end: int | None) -> list[KeyValue]:
    return [KeyValue(key[:, :, start:end], value[:, :, start:end]) for key, value in new]
