"""What the network stages share: the trained part of a world, caption encoding, the velocity loss."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from world_model.config import TrainingConfig
from world_model.flow import training_levels
from world_model.training.latents import LatentStore
from world_model.training.processes import own_rows, rows_of_all
from world_model.training.stage import Stage
from world_model.world import World

CODEC = "codec."  # what the tensors are named that no stage of the network trains
CAPTION_DROP = 0.1  # share of windows that see no captions, so that guidance is possible


class NetworkStage(Stage):
    """A stage that trains everything of a world but the codec."""

    def __init__(self, world: World, store: LatentStore, config: TrainingConfig) -> None:
        super().__init__()
        self.world = world
        self.store = store
        self.config = config
        freeze_codec(world)
        if config.caption_rate == 0:
            world.text.requires_grad_(False)  # its statistics stay, too

    @classmethod
    def starts_from(cls, world: World) -> World:
        """The world that the stage trains, made of the one that it is given; weights are shared."""
        return world.with_blocks(())  # what a parallel decoder learned does not outlive a change of the network

    def hidden_matrices(self) -> Iterable[nn.Parameter]:
        return self.world.transformer.block_matrices()

    def rates(self) -> list[tuple[list[nn.Parameter], float]]:
        return [(list(self.world.text.parameters()), self.config.caption_rate)]

    def weights(self) -> dict[str, Tensor]:
        """All tensors of the world but the codec's."""
        state = self.world.state_dict(keep_vars=True)
        return {name: value for name, value in state.items() if not name.startswith(CODEC)}

    def noise_levels(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Random levels to train the world's network at, of those that it serves."""
        return training_levels(shape, self.world.config.flow.shift, generator, self.world.noise_range)

    def encode_captions(self, codes: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """`encode_captions` by the stage's world."""
        return encode_captions(self.world, codes, active)


def freeze_codec(world: nn.Module) -> None:
    """Let a world's codec, if it has one, stay as it is."""
    for name, parameter in world.named_parameters():
        if name.startswith(CODEC):
            parameter.requires_grad_(False)


def encode_captions(world: World, codes: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Codes ``[B, U, bytes]`` to tokens ``[B, U * n, width]``, and their mask ``[B, T, U * n]``.

    Every distinct text of the batch is encoded once; where an encoder learns, those of all processes are, because it
    standardises over them.
    """
    together = world.text.training
    codes = rows_of_all(codes) if together else codes
    distinct, where = torch.unique(codes.flatten(0, 1), dim=0, return_inverse=True)
    where = where.unflatten(0, codes.shape[:2])
    tokens = world.text(distinct)[own_rows(where) if together else where]
    return tokens.flatten(1, 2), active.repeat_interleave(tokens.shape[2], dim=2)


def drop_captions(batch: dict[str, Tensor], generator: torch.Generator) -> None:
    """Blank all caption texts of some windows, in place."""
    dropped = torch.rand(len(batch["codes"]), generator=generator) < CAPTION_DROP
    batch["codes"][dropped] = 0


def with_picture(latents: Tensor, condition: Tensor | None, where: slice | list[int] = slice(None)) -> Tensor:
    """Latents ``[B, n, C, h, w]`` that stand at ``where`` in a window, with the channels that tell a large world its
    start picture, ``condition [B, T, K, h, w]``; other worlds have none."""
    return latents if condition is None else torch.cat([latents, condition[:, where]], dim=2)


def velocity_loss(predicted: Tensor, clean: Tensor, noise: Tensor) -> Tensor:
    """Mean squared error of a velocity ``[B, T, C, h, w]`` against ``noise - clean`` (Eq. 5), in float32."""
    return velocity_errors(predicted, clean, noise).mean()


def velocity_errors(predicted: Tensor, clean: Tensor, noise: Tensor) -> Tensor:
    """The squared errors that `velocity_loss` is the mean of."""
    return (predicted.float() - (noise - clean)).square()


def asked_mean(errors: Tensor, levels: Tensor, share: Tensor | None = None) -> Tensor:
    """The mean of ``errors [B, T, C, h, w]`` over the latents above level 0: a latent that was given has nothing to
    predict. ``share`` of all latents are such, where that is known of a larger batch than this one."""
    asked = levels.gt(0).float()
    return (errors * asked[..., None, None, None]).mean() / (asked.mean() if share is None else share)
