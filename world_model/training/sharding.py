"""Networks whose blocks are split among processes, for worlds that do not fit on one GPU (torch's FSDP2).

`accelerate launch --config_file world_model/training/accelerate/fsdp.yaml` asks for it. The matrices of each block of
each network are gathered while it computes and are split again afterwards, their gradients too; a student, a teacher
and a fake score are networks of their own and are never whole together. What else there is of a network is small and
stays whole: gains and biases, whose precision autocast decides on, and embeddings and heads, which are read by other
methods than ``forward``. So do the codec and the caption encoder.

Accelerate's own FSDP prepares one model with one optimiser; a stage has several networks and backward passes, so what
the launcher was asked for is done here. Whoever looks at weights or gradients goes through the functions below:
`own_part` where every number is for itself, `gathered` and `like` where they leave for a file or come from one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import parse_flag_from_env
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils import get_total_norm

from world_model.training import processes
from world_model.transformer import VelocityTransformer


def asked() -> bool:
    """Whether the launcher of this process was asked for FSDP; its configuration file is explained in ``fsdp.yaml``.

    Raises:
        ValueError: when it was asked for something that is not done here.
    """
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return False
    plugin = FullyShardedDataParallelPlugin()
    for name, found, wanted in (
        ("fsdp_version", plugin.fsdp_version, 2),
        ("fsdp_reshard_after_forward", plugin.reshard_after_forward, True),
        ("fsdp_offload_params", isinstance(plugin.cpu_offload, CPUOffloadPolicy), False),
        ("fsdp_activation_checkpointing", plugin.activation_checkpointing, False),
    ):
        if found != wanted:
            raise ValueError(f"{name} is {found} in accelerate's configuration; set it to {wanted}, as fsdp.yaml does")
    return True


def shard_as_asked(stage: nn.Module, accelerator: Accelerator) -> None:
    """Split a stage's networks among all processes, if there are several and the launcher was `asked` for it; the
    stage is then on the accelerator's device. Optimisers and averages have to be made afterwards.
    """
    if processes.count() == 1 or not asked():
        return
    device = accelerator.device
    compute = torch.bfloat16 if accelerator.mixed_precision == "bf16" else None
    shard_networks(stage, init_device_mesh(device.type, (processes.count(),)), compute)
    for tensor in chain(stage.parameters(), stage.buffers()):
        if not isinstance(tensor, DTensor):
            tensor.data = tensor.data.to(device)


def shard_networks(module: nn.Module, mesh: DeviceMesh, compute: torch.dtype | None = None) -> int:
    """Split the blocks of every network inside ``module`` over the processes of ``mesh``; gives how many networks.

    Matrices are gathered in ``compute`` (None: as they are), which is what autocast would make of them; their gradients
    are averaged over the processes by the backward pass.
    """
    networks = [part for part in module.modules() if isinstance(part, VelocityTransformer)]
    policy = MixedPrecisionPolicy(compute, torch.float32 if compute else None, cast_forward_inputs=False)
    for network in networks:
        whole = set(network.parameters()) - set(network.block_matrices())
        # Blocks first, and as parts of one network, so that one is fetched while the one before it computes. That they
        # are split after each pass is said outright: one that a rollout left whole would miss the next step's update.
        for part in (*network.blocks, network):
            fully_shard(part, mesh=mesh, reshard_after_forward=True, mp_policy=policy, ignored_params=whole)
        _carry_masks_past(network)
    return len(networks)


def own_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor, sharing its storage: everything where it is not split."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, value: Tensor) -> Tensor:
    """A whole ``value``, which all processes have, split as ``tensor`` is, if it is and has the same shape."""
    if not isinstance(tensor, DTensor) or value.shape != tensor.shape:
        return value
    return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements, src_data_rank=None)


def gathered(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, whole and on the CPU, in the first process; nothing in others, which have one whole at a time.

    A call that all processes make together.
    """
    whole = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        value = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if processes.is_first():
            whole[name] = value.cpu().contiguous()
    return whole


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Scale gradients, in place, so that together they are at most ``limit`` long; gives how long they were.

    It is `torch.nn.utils.clip_grad_norm_` for gradients some of which may be split.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = get_total_norm([gradient for gradient in gradients if not isinstance(gradient, DTensor)])
    split = [gradient.to_local() for gradient in gradients if isinstance(gradient, DTensor)]
    if split:
        square = get_total_norm(split).square()
        distributed.all_reduce(square)
        norm = (norm.square().to(square.device) + square).sqrt()
    torch._foreach_mul_([own_part(gradient) for gradient in gradients], (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


class _Carried:
    """A tensor that nobody takes for one."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _carry_masks_past(network: nn.Module) -> None:
    """Keep FSDP from copying a layout's mask to the GPU at every call: it stays on the CPU (`masks.Layout`), and what
    attention makes of it is found again by its identity."""

    def hide(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        on_cpu = (isinstance(x, Tensor) and x.dtype is torch.bool and x.device.type == "cpu" for x in given)
        return tuple(_Carried(x) if hidden else x for x, hidden in zip(given, on_cpu, strict=True))

    def show(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(x.tensor if isinstance(x, _Carried) else x for x in given)

    network.register_forward_pre_hook(hide, prepend=True)
    network.register_forward_pre_hook(show)
