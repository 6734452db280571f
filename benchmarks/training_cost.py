"""What a training iteration costs as the history grows: compressed memory against the full context (Fig. 6b).

The autoregressive stage learns the same 12 latents after histories of different lengths. *Compressed* is the world's
own memory: the sink, compressed slots and the adjacent latents. *Full context* keeps every latent of the history at
full resolution and compresses nothing. Both are timed in turn; latents are random, since costs do not depend on them.

  tokens      of the sequence that the network sees, for one clip
  seconds     of an iteration as training does it: forward, backward, clipping, optimisers, in bf16
  processor   seconds of all threads together, which a busy machine disturbs less
  saved       what the forward pass keeps for the backward pass, without the world's weights; on a CPU this counts the
              attention weights, which a GPU's fused kernel computes again instead
  peak        on a GPU, the most that was allocated during the iteration

The floor is an iteration without history. Intervals are 95 % bootstrap intervals over iterations.

examples:
  python -m benchmarks.training_cost --quick
  python -m benchmarks.training_cost --histories 16 32 64 128 256 --json results/cost.json --plot results/cost.png
  python -m benchmarks.training_cost --preset doom-gpu --device cuda --batch 2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks import report
from benchmarks.iteration import MIB, RandomStore, Stopwatch
from world_model.checkpoint import check_device
from world_model.config import PRESETS, TrainingConfig, WorldConfig
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.optimizer import build_optimizers
from world_model.world import World

HISTORIES, QUICK_LONGEST = (16, 32, 64, 128, 256), 128
ROUNDS, QUICK_ROUNDS = 5, 3
TARGETS = 12  # latents that are learned, as in the published curriculum of the bundled world
COMPRESSED, FULL = "compressed", "full context"


def full_context(config: WorldConfig, latents: int) -> WorldConfig:
    """The world with every one of so many latents at full resolution."""
    return replace(config, memory=replace(config.memory, budget_slots=0, adjacent_latents=latents))


def random_batch(stage: AutoregressiveStage, history: int, generator: torch.Generator) -> dict[str, Tensor]:
    """What `AutoregressiveStage.batch` gives when the targets have a whole history of that length before them."""
    batch = stage.store.windows(stage.config.batch, history + stage.config.frames, generator)
    count, latents = batch["latents"].shape[:2]
    return batch | {
        "first_target": torch.tensor(history),
        "levels": torch.rand(count, latents, generator=generator),
        "noise": torch.randn(batch["latents"].shape, generator=generator),
        "history_level": torch.rand(count, generator=generator) * stage.world.config.flow.history_noise,
        "history_noise": torch.randn(batch["latents"].shape, generator=generator),
        "coarse_noise": torch.randn(batch["coarse"].shape, generator=generator),
    }


@dataclass(frozen=True)
class Cost:
    """One iteration."""

    tokens: int
    seconds: float
    processor: float  # seconds of all threads
    saved: int  # bytes
    peak: int  # bytes, 0 where the device does not count


class Trainer:
    """Training of one world with one length of history, iteration by iteration."""

    def __init__(self, config: WorldConfig, history: int, batch: int, device: torch.device, seed: int) -> None:
        self.device = device
        self.training = TrainingConfig(batch=batch, frames=TARGETS, history=history)
        generator = torch.Generator().manual_seed(seed)
        world = World.random(config, seed).to(device)
        self.stage = AutoregressiveStage(world, RandomStore(config, history + TARGETS, generator), self.training)
        self.optimizers = build_optimizers(self.stage, self.training)
        self.batch = {name: value.to(device) for name, value in random_batch(self.stage, history, generator).items()}

    def iterate(self) -> Cost:
        """One iteration, and what it took."""
        tokens = []
        listener = self.stage.world.transformer.register_forward_pre_hook(
            lambda _, arguments: tokens.append(arguments[0].shape[1])
        )
        with Stopwatch(self.stage, self.device) as stopwatch:
            with torch.autocast(self.device.type, torch.bfloat16):
                loss, _ = self.stage(self.batch)
            loss.backward()
            nn.utils.clip_grad_norm_(self.stage.parameters(), self.training.clip_norm)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            lap = stopwatch.lap()
        listener.remove()
        return Cost(sum(tokens), lap.seconds, lap.processor, lap.held, lap.peak)


@dataclass(frozen=True)
class Line:
    """One memory with one length of history."""

    memory: str
    history: int
    tokens: int
    seconds: report.Interval
    processor: report.Interval
    saved: int  # bytes
    peak: int  # bytes


def measure(config: WorldConfig, history: int, rounds: int, settings: argparse.Namespace, bar: tqdm) -> list[Line]:
    """Iterations with both memories in turn; the first of each warms up. Without history there is one memory."""
    device = check_device(settings.device)
    memories = {COMPRESSED: config}
    if history:
        memories[FULL] = full_context(config, history + TARGETS)
    trainers = {
        name: Trainer(memory, history, settings.batch, device, settings.seed) for name, memory in memories.items()
    }
    costs: dict[str, list[Cost]] = {name: [] for name in trainers}
    for _ in range(1 + rounds):
        for name, trainer in trainers.items():
            costs[name].append(trainer.iterate())
            bar.update()
    lines = []
    for name, (_, *counted) in costs.items():
        times = ([cost.seconds for cost in counted], [cost.processor for cost in counted])
        intervals = [report.bootstrap(values, settings.seed, statistic=np.median) for values in times]
        last = counted[-1]
        lines.append(Line(name, history, last.tokens, *intervals, last.saved, last.peak))
    return lines


def table(lines: Sequence[Line]) -> str:
    """Each line with its ratio to the floor, which is the first."""
    floor = lines[0]
    header = ["memory", "history", "tokens", "seconds", "processor", "times floor", "saved (MiB)", "times floor"]
    rows = [
        [
            line.memory if line.history else "none (floor)",
            line.history,
            line.tokens,
            line.seconds.text(2),
            line.processor.text(2),
            f"{line.processor.mean / floor.processor.mean:.2f}",
            f"{line.saved / MIB:.1f}",
            f"{line.saved / floor.saved:.2f}",
        ]
        for line in lines
    ]
    if floor.peak:
        header.append("peak (MiB)")
        rows = [[*row, f"{line.peak / MIB:.0f}"] for row, line in zip(rows, lines, strict=True)]
    return report.markdown_table(header, rows)


def savings(lines: Sequence[Line]) -> list[str]:
    """What compression saves, a sentence for each length of history."""
    of = {(line.memory, line.history): line for line in lines}
    sentences = []
    for history in sorted({line.history for line in lines if line.memory == FULL}):
        small, large = of[COMPRESSED, history], of[FULL, history]
        sentences.append(
            f"history {history}: {large.tokens / small.tokens:.1f} times fewer tokens, "
            f"{large.seconds.mean / small.seconds.mean:.1f} times less time "
            f"({large.processor.mean / small.processor.mean:.1f} on the processor), "
            f"{large.saved / small.saved:.1f} times less kept for the backward pass"
        )
    return sentences


def panels(lines: Sequence[Line]) -> dict[str, list[report.Curve]]:
    """Time and memory over the length of the history, one curve for each memory."""

    with_history = [line for line in lines if line.history]
    seconds = {(line.memory, line.history): line.seconds for line in with_history}
    saved = {(line.memory, line.history): report.Interval(*3 * [line.saved / MIB], count=1) for line in with_history}
    return {"seconds an iteration": report.curves(seconds), "saved for the backward pass (MiB)": report.curves(saved)}


def main(settings: argparse.Namespace) -> None:
    """Run the benchmark and print its tables."""
    began = time.monotonic()
    report.require_positive(settings, "histories", "batch", "rounds")
    if settings.quick:
        settings.histories = sorted({min(history, QUICK_LONGEST) for history in settings.histories})
        settings.rounds = min(settings.rounds, QUICK_ROUNDS)
    config = PRESETS[settings.preset]
    lines: list[Line] = []
    total = (1 + settings.rounds) * (1 + 2 * len(settings.histories))
    with tqdm(total=total, desc="training", unit="iteration") as bar:
        for history in (0, *settings.histories):
            lines += measure(config, history, settings.rounds, settings, bar)

    print(f"\npreset {config.name!r} with random weights, batch {settings.batch}, {TARGETS} latents learned, bf16,")
    print(f"{settings.device}, {torch.get_num_threads()} threads; medians of {settings.rounds} iterations\n")
    print(table(lines), end="\n\n")
    print("\n".join(savings(lines)))
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if settings.json:
        report.write_json(settings.json, settings, {"lines": [asdict(line) for line in lines]})
    if settings.plot:
        report.plot(settings.plot, panels(lines), "latents of history")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = report.command_line(__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="doom", help="whose sizes (default: %(default)s)")
    parser.add_argument("--histories", type=int, nargs="+", default=list(HISTORIES), help="lengths, in latents")
    parser.add_argument("--batch", type=int, default=1, help="clips per iteration (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="iterations that count (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    settings = parse()
    raise SystemExit(report.run(main, settings))
