"""Learned reward and the end of an episode: small networks that read the world's own latents.

A step's reward is taken to be an *event*, as in the tasks of the Doom engine: it happened in this step or it did not.
An ensemble reads the newest latents and says for each task how likely it happened, and how likely it ended the task if
it did. It does not read actions: they would tell it how successful players move, and a policy must not be paid for that
in a world that shows nothing of it. Where the members disagree, the answer is not to be trusted.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from world_model.checkpoint import read_weights
from world_model.codec import CausalCodec
from world_model.config import RewardConfig, from_json, to_json
from world_model.files import whole
from world_model.world import World

REWARD_FILE = "reward.safetensors"


class Judgement(NamedTuple):
    """What reward heads say of one step of ``B`` slots, for each of ``K`` tasks; all are ``[B, K]``."""

    event: Tensor  # probability that what the task pays for happened in this step
    end: Tensor  # probability that it ended the task, given that it happened
    reward: Tensor  # expected reward
    spread: Tensor  # standard deviation of the ensemble's probabilities of the event, 0 to 0.5


class RewardHead(nn.Module):
    """One member: latents ``[B, k, C, h, w]`` to logits ``[B, K, 2]``, event and end."""

    def __init__(self, config: RewardConfig) -> None:
        super().__init__()
        channels, height, width = config.latent_shape
        each, together, kept = config.widths
        places = -(-height // 2) * -(-width // 2)
        self.each = nn.Conv2d(channels, each, 3, padding=1)  # the same for every latent
        self.together = nn.Conv2d(config.window * each, together, 1)
        self.shrink = nn.Conv2d(together, together, 3, stride=2, padding=1, groups=config.groups)
        self.kept = nn.Conv2d(together, kept, 1)
        self.hidden = nn.Linear(kept * places, config.hidden)
        self.out = nn.Linear(config.hidden, 2 * len(config.tasks))
        nn.init.zeros_(self.out.weight)  # before training it has no opinion, and all members agree
        nn.init.zeros_(self.out.bias)

    def forward(self, latents: Tensor) -> Tensor:
        batch, window = latents.shape[:2]
        x = functional.gelu(self.each(latents.flatten(0, 1))).unflatten(0, (batch, window)).flatten(1, 2)
        x = functional.gelu(self.together(x))
        x = functional.gelu(self.shrink(x))
        x = functional.gelu(self.hidden(self.kept(x).flatten(1)))
        return self.out(x).unflatten(1, (-1, 2))


class RewardHeads(nn.Module):
    """The ensemble. Its weights are random, its outputs zero, and depend on ``seed`` alone."""

    def __init__(self, config: RewardConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.members = nn.ModuleList(RewardHead(config) for _ in range(config.members))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks that they judge."""
        return self.config.tasks

    def forward(self, latents: Tensor) -> Tensor:
        """Logits ``[M, B, K, 2]`` of the members, before calibration."""
        return torch.stack([member(latents) for member in self.members])

    @torch.inference_mode()
    def judge(self, latents: Tensor) -> Judgement:
        """Judge the newest step from the newest latents ``[B, k, C, h, w]``, newest last."""
        logits = self(latents.float())
        chances = self.chances(logits[..., 0])
        event = chances.mean(0)
        amounts = torch.tensor(self.config.amounts, device=event.device)
        return Judgement(event, logits[..., 1].sigmoid().mean(0), amounts * event, chances.std(0, correction=0))

    def chances(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities of the events from logits ``[..., K]``."""
        scales, shifts = (torch.tensor(x, device=logits.device) for x in (self.config.scales, self.config.shifts))
        return (scales * logits + shifts).sigmoid()


def save_heads(heads: RewardHeads, file: Path) -> None:
    """Write heads as bfloat16, their configuration in the header, under a temporary name that is then renamed."""
    weights = {name: value.detach().cpu().to(torch.bfloat16) for name, value in heads.state_dict().items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole(file) as part:
        save_file(weights, part, metadata={"config": to_json(heads.config)})
        part.chmod(0o644)  # safetensors writes for the owner alone; worlds are shared


def read_heads(file: Path) -> RewardHeads:
    """Heads from a file, on the CPU and ready to judge.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it holds no reward heads or is damaged.
    """
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(file)!r}; train reward heads with `wp2 train reward`")
    try:
        with safe_open(file, framework="pt") as reader:
            config = from_json(reader.metadata()["config"], RewardConfig)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} holds no reward heads ({error}); write it with `wp2 train reward`") from error
    heads = RewardHeads(config)
    read_weights(heads, file)
    return heads.eval().requires_grad_(False)


def heads_of(world: World) -> RewardHeads | None:
    """The reward heads in the folder that a world was loaded from, on its device; None where there are none.

    Raises:
        ValueError: when the file is damaged or belongs to a world with another codec.
    """
    path = getattr(world, "path", None)
    file = None if path is None else Path(path) / REWARD_FILE
    if file is None or not file.is_file():
        return None
    heads = read_heads(file)
    check_fit(heads, world, file)
    return heads.to(world.device)


def check_fit(heads: RewardHeads, world: World, file: Path | str) -> None:
    """Raise `ValueError` unless the heads were trained on latents of the world's codec."""
    if heads.config.latent_shape != world.config.latent_shape or heads.config.codec != codec_digest(world.codec):
        raise ValueError(
            f"the reward heads of {file} were trained on the latents of another codec than that of the world "
            f"{world.name!r}; train them anew with `wp2 train reward`"
        )


def codec_digest(codec: CausalCodec) -> str:
    """What tells one codec from another: 16 hexadecimal digits, the same in whatever dtype it was loaded."""
    digest = hashlib.sha256()
    for name, value in sorted(codec.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().to(torch.bfloat16).view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]
