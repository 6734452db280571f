"""The training loop of every stage: budget, optimisers, averaging, logging, checkpoints.

A stage is a module whose ``forward(batch)`` is its loss and whose ``batch(generator, step)`` draws everything random,
so step ``k`` of a run is a function of the seed and ``k`` alone and a resumed run sees what an undisturbed one sees.
Several processes share the rows of every batch (`processes`), and the weights if asked to (`sharding`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from tqdm import tqdm

from world_model.config import TrainingConfig
from world_model.training import checkpointing, processes, sharding
from world_model.training.interruption import Interruption
from world_model.training.losses import append_loss, rewind_losses
from world_model.training.optimizer import ExponentialMovingAverage, build_optimizers, schedule
from world_model.training.stage import Stage


@dataclass(frozen=True)
class Budget:
    """When a run ends: after so many steps or minutes of training in all, whichever comes first."""

    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("a training run needs a budget; give --steps, --minutes or both")
        for name, value in (("steps", self.steps), ("minutes", self.minutes)):
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"--{name} is {value}; give a number above 0")

    def used(self, progress: checkpointing.Progress) -> float:
        """Share of the budget already used, in [0, 1]; all of it for a run that stopped itself."""
        shares = [float(progress.collapsed is not None)]
        if self.steps is not None:
            shares.append(progress.step / max(1, self.steps))
        if self.minutes is not None:
            shares.append(progress.minutes / max(1e-9, self.minutes))
        return min(1.0, max(shares))


def step_generator(seed: int, step: int) -> torch.Generator:
    """The source of all randomness of one training step."""
    return torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)


def train(
    stage: Stage, run: Path, config: TrainingConfig, budget: Budget, description: str, device: str | None = None
) -> checkpointing.Progress:
    """Train ``stage`` until the budget is used, continuing from the newest checkpoint in ``run`` if there is one.

    ``description`` is the JSON text stored beside each checkpoint. The run can be stopped in any way: an interrupt or
    SIGTERM writes a checkpoint first, anything harder loses at most ``config.checkpoint_minutes`` of work. A stage that
    judges its outcome (`Stage.judge`) has its best one kept in ``run / "best"``, and can end the run.
    """
    processes.joined(device)
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision="bf16", log_with="tensorboard", project_dir=str(run))
    run.mkdir(parents=True, exist_ok=True)
    sharding.shard_as_asked(stage, accelerator)
    # Without DDP, which knows neither stages with several backward passes nor steps that leave parameters unused.
    model = accelerator.prepare_model(stage, evaluation_mode=True)
    optimizers = build_optimizers(stage, config)
    progress = checkpointing.Progress()
    average = ExponentialMovingAverage(stage.weights(), config.ema_decay)
    existing = checkpointing.checkpoints(run)
    if existing:
        progress = checkpointing.load(existing[-1], stage.weights(), average.values, optimizers)
        progress.interrupted = False
        accelerator.print(f"continuing {run} at step {progress.step} after {progress.minutes:.1f} minutes")
    prepared = [accelerator.prepare_optimizer(optimizer) for optimizer in optimizers]
    accelerator.init_trackers(stage.name)
    if accelerator.is_main_process:
        rewind_losses(run, progress.step)

    def save() -> None:
        checkpointing.save(run, progress, stage.weights(), average.values, optimizers, description)

    bar = tqdm(total=budget.steps, initial=progress.step, desc=stage.name, disable=not accelerator.is_main_process)
    last, saved = time.monotonic(), progress.minutes
    recent: dict[str, torch.Tensor] = {}  # the newest of each metric since the last entry; not every step has all
    with Interruption() as interruption:
        while budget.used(progress) < 1 and not progress.interrupted:
            factor = schedule(progress.step, budget.used(progress), config)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = group["base_lr"] * factor
            batch = stage.batch(step_generator(config.seed, progress.step), progress.step)
            batch = stage.share(batch, accelerator.process_index, accelerator.num_processes)
            batch = {name: value.to(accelerator.device) for name, value in batch.items()}
            loss, metrics = model(batch)
            accelerator.backward(loss)
            processes.average_gradients(stage.parameters())
            norm = sharding.clip_gradients(stage.parameters(), config.clip_norm)
            for optimizer in prepared:
                optimizer.step()
                optimizer.zero_grad()
            average.update(stage.weights(), progress.step)
            now = time.monotonic()
            progress.step += 1
            minutes = progress.minutes + (now - last) / 60
            progress.minutes, asked = processes.largest_of([minutes, interruption.asked], accelerator.device)
            progress.interrupted = bool(asked)
            last = now
            bar.update()
            recent |= metrics
            judgement = stage.judge(metrics)
            progress.collapsed = judgement.collapsed
            if judgement.best:
                checkpointing.save(run / checkpointing.BEST, progress, stage.weights(), average.values, [], description)
            if judgement.collapsed is not None:
                accelerator.print(f"stopped at step {progress.step}: {judgement.collapsed}")
            if progress.step % 10 == 0 or progress.step == budget.steps or judgement.collapsed is not None:
                told = {"loss": loss.detach(), "norm": norm, "rate": factor} | recent
                metrics = processes.mean_of(told, accelerator.device)
                recent.clear()
                bar.set_postfix({name: f"{value:.4g}" for name, value in metrics.items()})
                accelerator.log(metrics, step=progress.step)
                if accelerator.is_main_process:
                    append_loss(run, {"step": progress.step, "minutes": progress.minutes} | metrics)
            if progress.minutes - saved > config.checkpoint_minutes:
                save()
                saved = progress.minutes
    save()
    accelerator.wait_for_everyone()
    bar.close()
    for tracker in accelerator.trackers:  # not `end_training`, which would part the processes before the next stage
        tracker.finish()
    return progress
