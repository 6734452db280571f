"""The key-value cache of a rollout: ``[sink | compressed | adjacent]`` for a batch of slots that live separate lives.

Keys are stored unrotated and rotated once per chunk by their *age*, the distance to the chunk being generated. Ages
are held at ``max_age``, so that no single position leaves what was trained, however long the rollout; that several old
slots then share one is extrapolation. Compressed entries have a budget; past it the history is thinned (`thinning`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from world_model.config import WorldConfig
from world_model.thinning import redundant_entry
from world_model.transformer.block import KeyValue
from world_model.transformer.rotary import grid_positions, rotary_table, rotate_into

EMPTY = -1  # the time of an entry that holds nothing


class CacheView(NamedTuple):
    """The cache as a chunk at ``now [B]`` sees it, with ``room`` for tokens at the end; see `HistoryCache.context`."""

    now: Tensor
    room: int
    key: Tensor
    value: Tensor
    visible: Tensor
    for_slots: Tensor


@dataclass
class HistoryCache:
    """Keys and values of all blocks for ``B`` slots; dimension 1 of ``key`` and ``value``, 0 of the times.

    A new entry takes the place of the one that it drives out, so entries are in no order; their times tell their age.
    """

    config: WorldConfig
    key: Tensor  # [blocks, B, heads, L, head], unrotated
    value: Tensor  # [blocks, B, heads, L, head]
    sink_time: Tensor  # int64 [B, sinks]
    slot_time: Tensor  # int64 [B, budget], the last latent that a compressed slot covers
    adjacent_time: Tensor  # int64 [B, window]
    _view: CacheView | None = None  # the newest one, until the entries change
    _places: Tensor | None = None  # of its keys and values; new memory for each chunk would cost more than filling it

    @classmethod
    def empty(cls, config: WorldConfig, batch: int, like: Tensor) -> HistoryCache:
        """A cache that holds nothing, with the dtype and device of ``like``."""
        sizes, memory = config.transformer, config.memory
        rows, columns = config.token_grid
        full = rows * columns
        small = config.memory_grid[0] * config.memory_grid[1]
        length = (memory.sink_latents + memory.adjacent_latents) * full + memory.budget_slots * small
        shape = (sizes.depth, batch, sizes.heads, length, sizes.width // sizes.heads)
        counts = (memory.sink_latents, memory.budget_slots, memory.adjacent_latents)
        times = (torch.full((batch, count), EMPTY, device=like.device) for count in counts)
        return cls(config, like.new_zeros(shape), like.new_zeros(shape), *times)

    def clone(self) -> HistoryCache:
        """An independent copy."""
        return replace(
            self, _view=None, _places=None, **{name: getattr(self, name).clone() for name in self._tensors()}
        )

    def put_row(self, row: int, other: HistoryCache, index: int) -> None:
        """Take slot ``index`` of ``other`` as slot ``row``."""
        self._view = None
        self.key[:, row], self.value[:, row] = other.key[:, index], other.value[:, index]
        for name in ("sink_time", "slot_time", "adjacent_time"):
            getattr(self, name)[row] = getattr(other, name)[index]

    def context(self, now: Tensor, room: int) -> tuple[list[KeyValue], Tensor, Tensor]:
        """What a chunk whose first latent is ``now [B]`` may see.

        Returns a rotated `KeyValue` per block, ending with ``room`` unused entries for the chunk's own tokens; which of
        its ``L`` tokens are visible, bool ``[B, L]``; and which of those a compressed slot may see (sink and slots),
        bool ``[B, L]``. A chunk that is denoised and then committed is given the same tensors both times.
        """
        if self._view is None or self._view.room < room or not torch.equal(self._view.now, now):
            self._view = self._rotated(now, max(room, self._most_room()))
        view = self._view
        end = self.key.shape[3] + room
        pairs = [KeyValue(key[:, :, :end], value[:, :, :end]) for key, value in zip(view.key, view.value, strict=True)]
        return pairs, view.visible, view.for_slots

    def _rotated(self, now: Tensor, room: int) -> CacheView:
        """Keys rotated by their age for a chunk at ``now``, with values and what is visible."""
        limit = self.config.memory.max_age
        tables, visible, for_slots = [], [], []
        for time, grid in self._segments():
            age = now[:, None] - time
            kept = time.ge(0)
            positions = grid_positions(-age.clamp(0, limit).float(), grid)
            tables.append(rotary_table(positions, self.key.shape[-1]))
            per_token = kept.repeat_interleave(grid[0] * grid[1], dim=1)
            visible.append(per_token)
            for_slots.append(torch.zeros_like(per_token) if time is self.adjacent_time else per_token)
        table = torch.cat(tables, dim=-2)[:, :, None]  # one table per slot, shared by blocks and heads
        length = self.key.shape[3]
        shape = (2, *self.key.shape[:3], length + room, self.key.shape[-1])
        if self._places is None or self._places.shape != shape:
            self._places = self.key.new_empty(shape)
        keys, values = self._places
        for place, key in zip(keys, self.key, strict=True):
            rotate_into(place[:, :, :length], key, table)
        values[:, :, :, :length] = self.value
        return CacheView(now.clone(), room, keys, values, torch.cat(visible, dim=1), torch.cat(for_slots, dim=1))

    def _most_room(self) -> int:
        """Tokens of a whole chunk and of the slots that it completes."""
        (rows, columns), (small_rows, small_columns) = self.config.token_grid, self.config.memory_grid
        n = self.config.chunk_latents
        return n * rows * columns + max(1, n // self.config.memory.temporal_stride) * small_rows * small_columns

    def visible_tokens(self) -> Tensor:
        """How many tokens a chunk may see: int64 ``[B]``."""
        return sum(time.ge(0).sum(dim=1) * grid[0] * grid[1] for time, grid in self._segments())

    def exchange_slots(self, order: Tensor) -> None:
        """Give the compressed entries of row ``order[i]`` to row ``i``; ``order`` is int64 ``[B]``."""
        self._view = None
        start, end = self._sink_tokens(), self._adjacent_start()
        for store in (self.key, self.value):
            store[:, :, :, start:end] = store[:, order, :, start:end]
        self.slot_time = self.slot_time[order]

    def set_sink(self, new: list[KeyValue]) -> None:
        """Store the first latent; it stays as long as the world does."""
        self._view = None
        tokens = new[0].key.shape[2]
        for block, (key, value) in enumerate(new):
            self.key[block, :, :, :tokens], self.value[block, :, :, :tokens] = key, value
        self.sink_time[:] = 0

    def push_adjacent(self, new: list[KeyValue], times: Tensor) -> None:
        """Take in clean latents at ``times [B, n]``; each takes the place of the one that leaves the window."""
        self._view = None
        window, tokens = self.config.memory.adjacent_latents, self.config.token_grid[0] * self.config.token_grid[1]
        times = times[:, -window:]
        places = times.remainder(window)
        self.adjacent_time.scatter_(1, places, times)
        newest = [KeyValue(*(part[:, :, -places.shape[1] * tokens :] for part in pair)) for pair in new]
        self._write(newest, self._adjacent_start() + _tokens_at(places, tokens), torch.ones_like(times[:, 0]).bool())

    def push_slot(self, new: list[KeyValue], time: Tensor, due: Tensor) -> None:
        """Take in one compressed slot that ends at ``time [B]``, where ``due [B]``; when the memory is full, it takes
        the place of the one that the thinned history can spare."""
        self._view = None
        if not self.config.memory.budget_slots or not bool(due.any()):
            return
        times, order = torch.cat([self.slot_time, time[:, None]], dim=1).sort(dim=1, stable=True)
        places = order.gather(1, redundant_entry(times)[:, None])
        self.slot_time[due] = self.slot_time.scatter(1, places, time[:, None])[due]
        small = self.config.memory_grid[0] * self.config.memory_grid[1]
        self._write(new, self._sink_tokens() + _tokens_at(places, small), due)

    def _write(self, new: list[KeyValue], places: Tensor, rows: Tensor) -> None:
        """Write tokens of every block, ``[B, heads, N, head]``, to ``places [B, N]`` of the rows where ``rows [B]``."""
        chosen = rows.nonzero()
        for store, part in ((self.key, 0), (self.value, 1)):
            tokens = torch.stack([pair[part] for pair in new])[:, rows]
            store[:, chosen, :, places[rows]] = tokens.permute(1, 3, 0, 2, 4).to(store.dtype)

    def _segments(self) -> list[tuple[Tensor, tuple[int, int]]]:
        grid = self.config.token_grid
        return [(self.sink_time, grid), (self.slot_time, self.config.memory_grid), (self.adjacent_time, grid)]

    def _sink_tokens(self) -> int:
        return self.config.memory.sink_latents * self.config.token_grid[0] * self.config.token_grid[1]

    def _adjacent_start(self) -> int:
        small = self.config.memory_grid[0] * self.config.memory_grid[1]
        return self._sink_tokens() + self.config.memory.budget_slots * small

    def _tensors(self) -> list[str]:
        return [item.name for item in fields(self) if item.name not in ("config", "_view", "_places")]


def _tokens_at(places: Tensor, size: int) -> Tensor:
    """The tokens of entries of ``size`` tokens at ``places [B, n]``: int64 ``[B, n * size]``."""
    return (places[..., None] * size + torch.arange(size, device=places.device)).flatten(-2)
