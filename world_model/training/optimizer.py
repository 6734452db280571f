"""The optimisers of every stage: Muon on the hidden matrices, AdamW on all the rest, one schedule for both."""

from __future__ import annotations

import torch
from torch import Tensor

from world_model.config import TrainingConfig
from world_model.training.sharding import own_part
from world_model.training.stage import Stage


def build_optimizers(stage: Stage, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """Optimisers for the parameters of ``stage`` that require gradients.

    Muon takes what the stage's ``hidden_matrices()`` names (two-dimensional weights inside the network); embeddings,
    first and last layers, convolutions, gains and biases are AdamW's. What ``rates()`` names learns at a rate of its
    own.
    """
    matrices = list(stage.hidden_matrices())
    special = [{"params": group, "lr": share * config.learning_rate} for group, share in stage.rates()]
    taken = {id(parameter) for parameter in matrices} | {id(p) for group in special for p in group["params"]}
    others = [p for p in stage.parameters() if p.requires_grad and id(p) not in taken]
    groups = [{"params": others}, *special]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay)
    ]
    if matrices:
        optimizers.append(
            torch.optim.Muon(
                matrices,
                lr=config.matrix_learning_rate,
                weight_decay=config.weight_decay,
                adjust_lr_fn="match_rms_adamw",  # the rate then means the same as AdamW's
            )
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return optimizers


def schedule(step: int, progress: float, config: TrainingConfig) -> float:
    """Factor on the learning rate: linear warm-up by steps, flat, then linear decay to zero by budget.

    ``progress`` in [0, 1] is the share of the budget already used, in steps or in time, whichever is further on.
    """
    warmup = min(1.0, (step + 1) / max(1, config.warmup_steps))
    decay = 1.0 if config.decay_fraction == 0 else min(1.0, max(0.0, 1 - progress) / config.decay_fraction)
    return warmup * decay


class ExponentialMovingAverage:
    """A slowly moving copy of the trained parameters, better than any single step's."""

    def __init__(self, parameters: dict[str, Tensor], decay: float) -> None:
        self.decay = decay
        self.values = {name: value.detach().clone() for name, value in parameters.items()}

    @torch.no_grad()
    def update(self, parameters: dict[str, Tensor], step: int) -> None:
        """Move toward ``parameters``; early steps move faster, so that the start is forgotten."""
        weight = 1 - min(self.decay, (step + 1) / (step + 10))
        names = list(self.values)
        floating = [name for name in names if self.values[name].is_floating_point()]
        ours, theirs = ([own_part(tensors[name]) for name in floating] for tensors in (self.values, parameters))
        torch._foreach_lerp_(ours, theirs, weight)
