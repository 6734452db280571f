"""Stable Forcing of a random world, iteration by iteration: what `forcing_cost` measures, and in which process."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import torch
from torch import nn

from benchmarks.iteration import Lap, RandomStore, Stopwatch
from world_model.checkpoint import check_device
from world_model.config import WorldConfig
from world_model.training.optimizer import build_optimizers
from world_model.training.stable_forcing import FullContextForcingStage, StableForcingStage
from world_model.transformer.masks import bidirectional
from world_model.world import World

CLIPWISE, FULL = "clip-wise", "full context"
STAGES = {CLIPWISE: StableForcingStage, FULL: FullContextForcingStage}
PARTS = ROLLOUT, SCORING, REPLAY, FAKE, REST = "1 rollout", "2 scoring", "3 replay", "4 fake score", "optimisers"
SCORED = SCORING, FAKE  # what depends on what the scores see
WARM = 1_000_000  # steps over which a rollout grows from one clip, with which a process warms up, to all of them
WORKING_MAPS, ROWS = 5, 50  # see `predicted_growth`; measured with the doom preset
LEARNING = 3  # what a trained weight needs: a gradient and AdamW's two moments
GIB = 2**30


@dataclass(frozen=True)
class Prospect:
    """What is known of an iteration before it runs."""

    tokens: int  # of the longest score evaluation
    growth: int  # bytes, roughly


@dataclass(frozen=True)
class Cost:
    """One iteration."""

    laps: dict[str, Lap]  # for each of `PARTS`
    grown: int  # bytes that the process has grown by since before its first iteration

    def total(self, what: str, parts: tuple[str, ...] = PARTS) -> float:
        return sum(getattr(self.laps[part], what) for part in parts)

    def most(self, what: str) -> int:
        return max(getattr(lap, what) for lap in self.laps.values())


class Forcing:
    """Stable Forcing of one random world on rollouts of one length, iteration by iteration."""

    def __init__(self, config: WorldConfig, scores: str, rollout: int, clip: int, batch: int, device: str, seed: int):
        self.device = check_device(device)
        forcing = config.curriculum.stable_forcing
        self.training = replace(forcing, batch=batch, frames=clip, clips=rollout // clip, growth_steps=WARM)
        generator = torch.Generator().manual_seed(seed)
        store = RandomStore(config, self.training.start + rollout, generator)
        teacher = World.random(config, seed)
        student = STAGES[scores].starts_from(teacher)
        self.stage = STAGES[scores](student, store, self.training, teacher).to(self.device)
        self.optimizers = build_optimizers(self.stage, self.training)
        self._batches = [self._batch(generator, step) for step in (0, WARM)]
        self._mark_parts()
        self._before = resident_peak()

    def prospect(self) -> Prospect:
        """What an iteration will take; lays out all of its sequences, which is done once in a training run."""
        start, clip, end = self.training.start, self.training.frames, self.training.clips * self.training.frames
        config = self.stage.scores.real.world.config
        ends = range(start + clip, start + end + 1, clip)
        tokens = max(len(bidirectional(config, stop, stop - clip).group) for stop in ends)
        if self.device.type != "cpu":
            return Prospect(tokens, 0)  # a GPU's allocator keeps to the limit by itself
        trained = sum(p.numel() * p.element_size() for p in self.stage.parameters() if p.requires_grad)
        return Prospect(tokens, LEARNING * trained + predicted_growth(config, tokens, self.training.batch))

    def iterate(self, warming: bool = False) -> Cost | None:
        """One iteration, and what it took; None when there was not enough memory. Warming up has rollouts of a clip."""
        batch = self._batches[not warming]
        self._laps: dict[str, Lap] = {}
        try:
            with Stopwatch(self.stage, self.device) as self._stopwatch:
                with torch.autocast(self.device.type, torch.bfloat16):
                    loss, _ = self.stage(batch)
                loss.backward()
                self._lap(FAKE)
                nn.utils.clip_grad_norm_(self.stage.parameters(), self.training.clip_norm)
                for optimizer in self.optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
                self._lap(REST)
        except torch.OutOfMemoryError:
            return None
        return Cost(self._laps, resident_peak() - self._before)

    def _batch(self, generator: torch.Generator, step: int) -> dict[str, torch.Tensor]:
        batch = self.stage.batch(generator, step)
        batch |= {"for_student": torch.tensor(True), "look": torch.tensor(False)}
        return {name: value.to(self.device) for name, value in batch.items()}

    def _mark_parts(self) -> None:
        """Take the time of each part of the stage's iteration where the next one begins."""

        def after(part: str, function: Callable) -> Callable:
            def marked(*arguments: object) -> object:
                self._lap(part)
                return function(*arguments)

            return marked

        stage = self.stage
        stage.update_student = after(ROLLOUT, stage.update_student)
        stage.student.replay = after(SCORING, stage.student.replay)
        stage.scores.fake_losses = after(REPLAY, stage.scores.fake_losses)

    def _lap(self, part: str) -> None:
        self._laps[part] = self._stopwatch.lap()


def predicted_growth(config: WorldConfig, tokens: int, batch: int) -> int:
    """Roughly the bytes that scores need on a CPU: the fake score's graph of its longest sequence, in bf16.

    Each layer keeps its attention weights, and activations of some 50 widths for each token; the layer at work has some
    attention weights more at hand.
    """
    network = config.transformer
    maps, rows = 2 * batch * network.heads * tokens**2, 2 * batch * tokens * network.width
    return (network.depth + WORKING_MAPS) * maps + ROWS * network.depth * rows


def resident_peak() -> int:
    """The most memory that this process has had resident, in bytes; 0 where the system does not tell."""
    try:
        import resource
    except ModuleNotFoundError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Apart:
    """`Forcing` in a process of its own, so that what it has resident is its own, too."""

    def __init__(self, make: Callable[[], Forcing], threads: int, limit: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, threads, limit), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()  # which ends the process
        self._process.join()

    def prospect(self) -> Prospect:
        return self._ask("prospect")

    def iterate(self, warming: bool = False) -> Cost | None:
        return self._ask("iterate", warming)

    def _ask(self, *request: object) -> object:
        try:
            self._connection.send(request)
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise ChildProcessError(
                f"the process that measures ended with code {self._process.exitcode}; if the system ran out of memory, "
                "give a smaller --limit-gb"
            ) from None


def _serve(connection: Connection, make: Callable[[], Forcing], threads: int, limit: float) -> None:
    torch.set_num_threads(threads)
    forcing = make()
    if forcing.device.type == "cuda":
        total = torch.cuda.get_device_properties(forcing.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit * GIB / total), forcing.device)
    while True:
        try:
            method, *arguments = connection.recv()
        except EOFError:
            return
        connection.send(getattr(forcing, method)(*arguments))
