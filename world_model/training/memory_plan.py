"""What training a stage of the curriculum needs of each GPU's memory, found without one: nothing here holds a number.

One step of the real stage runs on the meta device (`meta_stages`), a step in which every network learns that ever does,
and the bytes that are alive at once are followed. Every GPU learns from its share of the batch (`processes`), hence has
activations of its own, and holds of each network all weights or, of the matrices of its blocks, its part (`sharding`).

Three things make it an upper bound. Every text of a batch counts as another one. Attention with a mask is torch's fused
form, which adds it to the scores, where FlexAttention on CUDA only reads it. And each chunk of a student's own rollout
learns at its last evaluation, the most there are. The codec of a large world, which decodes these rollouts, counts with
its weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from torch import Tensor

from world_model.config import TrainingConfig, WorldConfig
from world_model.large.config import LargeConfig
from world_model.large.plan import CODECS, COMPUTE, MASTER, FusedAttention, Item, Peak, Plan, frames_of
from world_model.large.trainable import TrainableWorld
from world_model.training.few_step import FewStepStage
from world_model.training.history import HistoryStage
from world_model.training.memory_stage import HISTORY_STEP
from world_model.training.meta_stages import meta_batch, meta_stage, step
from world_model.training.objective import NetworkStage
from world_model.training.stable_forcing import StableForcingStage
from world_model.training.stages import (
    ALL_EXPERTS,
    FORCING_STAGES,
    LARGE_STAGES,
    NETWORK_STAGES,
    check_expert,
    check_large_stage,
)
from world_model.world import World

STAGES = NETWORK_STAGES | {name: kind for name, kind in FORCING_STAGES.items() if name in LARGE_STAGES}
ADAMW_MOMENTS, MUON_MOMENTA = 2, 1  # values of the optimisers' state per parameter
GATHERED_BLOCKS = 2  # whole on every GPU: the one at work and the one being fetched


def plan_stage(config: WorldConfig, stage: str, gpus: int = 1, sharded: bool = False) -> Plan:
    """The memory to train ``stage``, one of `STAGES`, with the settings of ``config``'s curriculum, at its longest
    history. With ``sharded`` the GPUs split the networks' blocks.

    Raises:
        ValueError: when the batch does not split among the GPUs, and for a stage of rollouts.
    """
    if stage in FORCING_STAGES:
        raise ValueError(
            f"the stage {stage} of {config.name} cannot be planned: a small world's rollout looks at numbers, which a "
            "plan has none of; plan a large preset, or train it for a step"
        )
    kind = STAGES[stage]
    settings = kind.settings(config)
    settings = replace(settings, history=settings.history // HISTORY_STEP * HISTORY_STEP)
    return _plan(meta_stage(kind, config, settings), gpus, sharded)


def plan_large_stage(
    config: LargeConfig, stage: str, settings: TrainingConfig, gpus: int = 1, recompute: bool = True
) -> Plan:
    """The memory to train ``stage`` of a large world with such settings; GPUs split all blocks. Of two experts one is
    trained, but both by stages that roll out.

    With ``recompute`` the blocks' activations are computed again in the backward pass (checkpointing), as they are in
    training.

    Raises:
        ValueError: for a stage that does not train such worlds, and when the batch does not split among the GPUs.
    """
    check_large_stage(stage, config.world.name)
    check_expert(stage, None if stage in ALL_EXPERTS or len(config.experts) == 1 else config.experts[0], config.experts)
    kept = meta_stage(STAGES[stage], config, settings)
    for world in networks_of(kept).values():
        world.transformer.recompute = recompute
    return _plan(kept, gpus, sharded=True)


def window_settings(config: LargeConfig, stage: str, latents: int | None = None, batch: int = 1) -> TrainingConfig:
    """The settings of ``config``'s curriculum for windows of ``latents`` latents, ``batch`` of them in a step.

    A window ends with as many latents as the stage learns at once, but for a chunk at least, and what comes before them
    is history. A rollout is true latents, as many as in the curriculum, and clips. Without a number windows are the
    longest of the curriculum, and rollouts have one clip: each chunk of theirs takes seconds to follow.

    Raises:
        ValueError: for a stage that does not train large worlds, and for windows that do not split into such clips.
    """
    check_large_stage(stage, config.world.name)
    settings = replace(STAGES[stage].settings(config.world), batch=batch)
    if latents is None:
        return replace(settings, clips=1) if stage in FORCING_STAGES else settings
    if stage not in FORCING_STAGES:
        n = config.world.chunk_latents
        frames = max(n, min(settings.frames, latents - n)) if settings.history else latents
        return replace(settings, frames=frames, history=latents - frames)
    frames = min(settings.frames, latents - settings.start)
    clips, rest = divmod(latents - settings.start, frames) if frames > 0 else (0, 1)
    if rest:
        given, true = frames_of(config, latents), frames_of(config, settings.start)
        one, some = (frames_of(config, settings.start + max(1, clips + k) * settings.frames) for k in (0, 1))
        raise ValueError(
            f"a rollout of {given} frames is not {true} true ones and clips of "
            f"{settings.frames * config.world.codec.temporal_factor}; give {one} or {some}"
        )
    return replace(settings, frames=frames, clips=clips)


def networks_of(stage: NetworkStage) -> dict[str, World | TrainableWorld]:
    """The networks that a stage holds, each of two experts alone, by their parts in it."""
    if isinstance(stage, FewStepStage):
        return {"student": stage.world, "teacher": stage.teacher.world}
    if not isinstance(stage, StableForcingStage):
        return {"": stage.world}
    networks = {}
    for role, part in {"student": stage.world, "teacher": stage.scores.real, "fake score": stage.scores.fake}.items():
        experts = part.world.experts if isinstance(part, HistoryStage) else part.experts
        for name, expert in experts.items():
            network = expert.world if isinstance(expert, HistoryStage) else expert
            networks[f"{role}, {name}" if len(experts) > 1 else role] = network
    return networks


def _plan(stage: NetworkStage, gpus: int, sharded: bool) -> Plan:
    """The plan of a stage on the meta device."""
    trained = {id(p) for p in stage.parameters() if p.requires_grad}
    networks = networks_of(stage)
    matrices = {id(p) for world in networks.values() for p in world.transformer.block_matrices()}
    split = matrices if sharded and gpus > 1 else set()
    muon = {id(p) for p in stage.hidden_matrices()}
    averaged = {id(x) for x in stage.weights().values()}

    def item(what: str, tensors: Iterable[Tensor], size: Callable[[Tensor], int]) -> Item:
        """What has so many bytes for each number of a tensor."""
        sizes = [(size(x) * x.numel(), id(x) in split) for x in tensors]
        return Item(what, sum(size for size, _ in sizes), sum(size for size, is_split in sizes if is_split))

    def moments(parameter: Tensor) -> int:
        return MASTER.itemsize * (MUON_MOMENTA if id(parameter) in muon else ADAMW_MOMENTS)

    items = []
    for role, world in networks.items():
        tensors, whose = list(world.state_dict(keep_vars=True).values()), f"{role}: " if role else ""
        learning = [x for x in tensors if id(x) in trained]
        optimiser = "optimiser (AdamW, Muon)" if any(id(x) in muon for x in learning) else "optimiser (AdamW)"
        items += [
            item(f"{whose}weights", tensors, lambda _: MASTER.itemsize),
            item(f"{whose}gradients", learning, lambda _: MASTER.itemsize),
            item(f"{whose}{optimiser}", learning, moments),
            item(f"{whose}averaged weights", (x for x in tensors if id(x) in averaged), lambda _: MASTER.itemsize),
            # Autocast keeps copies of what learns and is whole; frozen weights are copied again each time.
            item(f"{whose}weights in bf16", (x for x in learning if id(x) not in split), lambda _: COMPUTE.itemsize),
        ]
    items.append(Item("gathered blocks and gradients", _passing(networks.values(), split)))
    batch = stage.share(meta_batch(stage), 0, gpus)
    with FusedAttention(), Peak(p for p in stage.parameters() if p.requires_grad) as peak:
        tokens = step(stage, batch)
    items += [Item("batch", sum(x.nbytes for x in batch.values())), Item("activations", peak.bytes)]
    if isinstance(stage, StableForcingStage):
        items.append(Item("codec", CODECS[stage.world.config.codec.spatial_factor] * MASTER.itemsize))
    return Plan(sum(p.numel() for world in networks.values() for p in world.parameters()), tokens, gpus, tuple(items))


def _passing(networks: Iterable[World | TrainableWorld], split: set[int]) -> int:
    """Bytes of blocks that come, in bf16, and of gradients that go, which are averaged in float32. One network works
    at a time, and the largest block counts."""
    blocks = (block for world in networks for block in world.transformer.blocks)
    largest = max(sum(p.numel() for p in block.parameters() if id(p) in split) for block in blocks)
    return largest * ((GATHERED_BLOCKS + 1) * COMPUTE.itemsize + MASTER.itemsize)
