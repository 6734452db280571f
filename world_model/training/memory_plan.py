"""What training a stage of the curriculum needs of each GPU's memory, for the presets that fit on one.

As for the large worlds (`large.plan`) nothing here holds a number: the stage's own forward pass runs on the meta
device, and what it keeps is followed. Each GPU learns from its share of the batch (`processes`), and holds all weights
or, of the network's blocks, its part (`sharding`). Only captions differ: every text of the batch counts as another one,
so the plan is an upper bound there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from world_model.config import TrainingConfig, WorldConfig
from world_model.controls import ACTION_DIM
from world_model.large.plan import ADAMW_MOMENTS, COMPUTE, MASTER, FusedAttention, Item, Peak, Plan, Sizes
from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.latents import FIELDS
from world_model.training.memory_stage import HISTORY_STEP
from world_model.training.navigation import NavigationStage
from world_model.training.objective import NetworkStage
from world_model.world import World

STAGES: dict[str, type[NetworkStage]] = {kind.name: kind for kind in (NavigationStage, AutoregressiveStage)}
MUON_MOMENTA = 1  # values of Muon's state per parameter


def plan_stage(config: WorldConfig, stage: str, gpus: int = 1, sharded: bool = False) -> Plan:
    """The memory to train ``stage``, one of `STAGES`, with the settings of ``config``'s curriculum, at its longest
    history. With ``sharded`` the GPUs split the network's blocks.

    Raises:
        ValueError: when the batch does not split among the GPUs.
    """
    kind = STAGES[stage]
    settings = kind.settings(config)
    kept = meta_stage(kind, config, settings)
    trained = [p for p in kept.parameters() if p.requires_grad]
    muon = {id(p) for p in kept.hidden_matrices()}
    with FusedAttention(), Peak(nn.ParameterList(trained)) as peak:
        tokens = follow(kept, kept.share(meta_batch(kept), 0, gpus))
    network = kept.world.transformer
    within = {id(p) for p in network.block_matrices()} if sharded and gpus > 1 else set()

    def item(what: str, tensors: Iterable[Tensor], values: Callable[[Tensor], int] = lambda _: 1) -> Item:
        """What has so many float32 values for each number of a tensor."""
        sizes = [(MASTER.itemsize * values(x) * x.numel(), id(x) in within) for x in tensors]
        return Item(what, sum(size for size, _ in sizes), sum(size for size, split in sizes if split))

    computing = Sizes(
        all=sum(p.numel() for p in trained),
        split=sum(p.numel() for p in trained if id(p) in within),
        gathered=max(sum(p.numel() for p in block.parameters() if id(p) in within) for block in network.blocks),
    )
    items = (
        item("weights", kept.world.state_dict(keep_vars=True).values()),
        item("gradients", trained),
        item("optimiser (AdamW, Muon)", trained, lambda p: MUON_MOMENTA if id(p) in muon else ADAMW_MOMENTS),
        item("averaged weights", kept.weights().values()),
        *computing.computing(gpus),
        Item("activations", peak.bytes),
    )
    return Plan(sum(p.numel() for p in kept.world.parameters()), tokens, gpus, items)


def meta_stage(kind: type[NetworkStage], config: WorldConfig, settings: TrainingConfig) -> NetworkStage:
    """A stage without numbers or recordings, whose networks are in the precision of their computation."""
    with torch.device("meta"):
        world = World(replace(config, curriculum=replace(config.curriculum, **{kind.name: settings})))
    return distinct_captions(kind(computing(world), None, settings).train())


def computing(world: World) -> World:
    """The world with its trained networks in the precision of their computation."""
    for network in (world.transformer, world.compressor, world.text):
        network.to(COMPUTE)
    world.text.standardise.float()  # its statistics stay
    return world


def distinct_captions(stage: NetworkStage) -> NetworkStage:
    """The stage with an encoder that takes every text of a batch for another one, so that no number is looked at."""

    def encode(codes: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        tokens = stage.world.text(codes.flatten(0, 1)).unflatten(0, codes.shape[:2])
        return tokens.flatten(1, 2).to(COMPUTE), active.repeat_interleave(tokens.shape[2], dim=2)

    stage.encode_captions = encode
    return stage


def meta_batch(stage: NetworkStage, device: str = "meta") -> dict[str, Tensor]:
    """A batch as the stage draws it, at its longest history, without what is in it; ``first_target`` has a number."""
    config, settings = stage.world.config, stage.config
    deep = isinstance(stage, AutoregressiveStage)
    history = settings.history // HISTORY_STEP * HISTORY_STEP if deep else 0
    count, latents = settings.batch, history + settings.frames
    channels, height, width = config.latent_shape
    shrink = config.memory.spatial_stride
    shapes = {
        "latents": (latents, channels, height, width),
        "noise": (latents, channels, height, width),
        "levels": (latents,),
        "actions": (latents, ACTION_DIM),
    }
    if deep:
        small = latents, channels, height // shrink, width // shrink
        shapes |= {"history_noise": shapes["noise"], "coarse": small, "coarse_noise": small, "history_level": ()}
        shapes |= {"sink": shapes["noise"][1:], "sink_actions": (ACTION_DIM,)}
    batch = {name: torch.zeros(count, *shape, device=device) for name, shape in shapes.items()}
    batch["codes"] = torch.zeros(count, FIELDS, config.text.max_bytes, dtype=torch.int64, device=device)
    batch["active"] = torch.ones(count, latents, FIELDS, dtype=torch.bool, device=device)
    return batch | {"asked": torch.ones((), device=device), "first_target": torch.tensor(history)}


def follow(stage: NetworkStage, batch: dict[str, Tensor]) -> int:
    """One forward and backward pass; gives the tokens of a sequence."""
    seen: list[int] = []
    handle = stage.world.transformer.blocks[0].register_forward_pre_hook(
        lambda _, given: seen.append(given[0].shape[1])
    )
    loss, _ = stage(batch)
    loss.backward()
    handle.remove()
    return max(seen)
