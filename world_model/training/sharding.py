"""Networks whose blocks are split among processes, for worlds that do not fit on one GPU (torch's FSDP2).

Each block of each network is gathered while it computes and is split again afterwards, its gradients too; a student, a
teacher and a fake score are networks of their own and are never whole together. What is outside the blocks
(embeddings, heads: a small part of a large network) is read by other methods than ``forward`` and stays whole.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from world_model.transformer import VelocityTransformer


def shard_networks(module: nn.Module, mesh: DeviceMesh, compute: torch.dtype | None = None) -> int:
    """Split the blocks of every network inside ``module`` over the processes of ``mesh``; gives how many networks.

    Blocks compute in ``compute`` (None: as their parameters are), and their gradients are averaged over the processes
    by the backward pass. Optimisers have to be made afterwards, of the parameters that are there then.
    """
    networks = [part for part in module.modules() if isinstance(part, VelocityTransformer)]
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32 if compute else None)
    for network in networks:
        for block in network.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
    return len(networks)


def gathered(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The whole tensors behind those that are split; a call that all processes make together."""
    return {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in tensors.items()}
