"""What the benchmarks of training share: random latents, and a stopwatch that also sees what autograd holds."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from world_model.config import WorldConfig
from world_model.controls import ACTION_DIM, PERSPECTIVE, StructuredCaption
from world_model.text import field_texts, to_bytes
from world_model.training.latents import FIELDS, EncodedClip, LatentStore

MIB = 2**20


class RandomStore(LatentStore):
    """One clip of random latents in place of recordings."""

    def __init__(self, config: WorldConfig, latents: int, generator: torch.Generator) -> None:
        channels, height, width = config.latent_shape
        shrink = config.memory.spatial_stride
        shapes = (latents, channels, height, width), (latents, channels, height // shrink, width // shrink)
        rows = torch.zeros(latents, ACTION_DIM)
        rows[:, PERSPECTIVE] = 1
        self.config = config
        self.texts = to_bytes(field_texts(StructuredCaption("a hall")), config.text.max_bytes)
        texts = torch.arange(FIELDS).expand(latents, -1)
        self.clips = [EncodedClip(*(torch.randn(shape, generator=generator) for shape in shapes), rows, texts)]


class HeldMemory:
    """The bytes that autograd holds for backward passes of what runs while it is open, now and at their peak.

    Storages count once, however many views of them are held, and until the last one's graph is freed; those of
    ``module``'s parameters and buffers do not count, since they are there anyway.
    """

    def __init__(self, module: nn.Module) -> None:
        self.bytes = self.peak = 0
        self._known = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
        self._views: Counter[int] = Counter()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._hold, lambda held: held.tensor)

    def __enter__(self) -> HeldMemory:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _hold(self, tensor: Tensor) -> _Held:
        storage = tensor.untyped_storage()
        return _Held(tensor, None if storage.data_ptr() in self._known else self)

    def count(self, storage: torch.UntypedStorage, views: int) -> None:
        """So many more views of a storage are held."""
        place = storage.data_ptr()  # alive, and so its own, as long as a view is held
        before = self._views[place]
        self._views[place] += views
        if not before or not self._views[place]:
            self.bytes += views * storage.nbytes()
            self.peak = max(self.peak, self.bytes)


class _Held:
    """A tensor that a graph holds; it goes with the graph."""

    def __init__(self, tensor: Tensor, memory: HeldMemory | None) -> None:
        self.tensor, self.memory = tensor, memory
        if memory is not None:
            memory.count(tensor.untyped_storage(), 1)

    def __del__(self) -> None:
        if self.memory is not None:
            self.memory.count(self.tensor.untyped_storage(), -1)


@dataclass(frozen=True)
class Lap:
    """One part of an iteration."""

    seconds: float
    processor: float  # seconds of all threads
    held: int  # bytes, the most that autograd held for backward passes
    peak: int  # bytes, the most that was allocated; 0 where the device does not count


class Stopwatch(HeldMemory):
    """Takes the time and the memory of what runs while it is open, part by part."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        super().__init__(module)
        self._device = device
        self._began = 0.0, 0.0

    def __enter__(self) -> Stopwatch:
        super().__enter__()
        self.lap()
        return self

    def lap(self) -> Lap:
        """What ran since the last lap, or since it was opened; waits for the device."""
        allocated = 0
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            allocated = torch.cuda.max_memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        now, held = (time.perf_counter(), time.process_time()), self.peak
        began, self._began, self.peak = self._began, now, self.bytes
        return Lap(now[0] - began[0], now[1] - began[1], held, allocated)
