"""The two scores of Stable Forcing: how likely is a clip, given its past, to the teacher and to the student?

Each sees one clip of a rollout and compressed memory of what came before it, so the cost of a clip does not depend on
how long the rollout is. Both are flow models, whose clean estimates of a noisy clip tell where its likelihood rises.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from world_model.config import StableForcingConfig
from world_model.flow import ALL_LEVELS, add_noise
from world_model.large.pair import TrainablePair
from world_model.large.trainable import Trainable
from world_model.training.history import HistoryStage
from world_model.training.latents import LatentStore
from world_model.training.memory_stage import Noisy
from world_model.world import World

PER_LATENT = ("latents", "coarse", "actions", "active", "history_noise", "coarse_noise")
OF_LARGE = ("condition", "coarse_condition", "given")  # per latent, too


@dataclass
class ScoredRollout:
    """A rollout as the scores read it: a batch of `autoregressive` whose latents are the student's, without noise."""

    batch: dict[str, Tensor]
    clips: list[slice]  # where each clip's latents are

    @classmethod
    def of(cls, batch: dict[str, Tensor], latents: Tensor, coarse: Tensor, clips: list[slice]) -> ScoredRollout:
        """``latents [B, T, C, h, w]`` and ``coarse`` of a rollout under a batch's actions and captions."""
        seen = {
            "latents": latents,
            "coarse": coarse,
            "sink": latents[:, 0],
            "sink_actions": batch["actions"][:, 0],
            "history_level": latents.new_zeros(len(latents)),
            "history_noise": torch.zeros_like(latents),
            "coarse_noise": torch.zeros_like(coarse),
        }
        return cls(batch | seen, clips)

    def window(self, clip: slice) -> dict[str, Tensor]:
        """A clip and what came before it; nothing after it."""
        names = (*PER_LATENT, *(name for name in OF_LARGE if name in self.batch))
        cut = {name: self.batch[name][:, : clip.stop] for name in names}
        return self.batch | cut | {"first_target": torch.tensor(clip.start)}


class ClipScores(nn.Module):
    """The frozen teacher, the *real* score, and a trainable copy of it, the *fake* score, which follows the student."""

    def __init__(self, teacher: World, store: LatentStore, config: StableForcingConfig) -> None:
        super().__init__()
        self.config = config
        teacher = teacher.with_blocks(())
        self.real = score_of(copy.deepcopy(teacher), store, config).requires_grad_(False)
        fake = copy.deepcopy(teacher).requires_grad_(True)
        fake.text.requires_grad_(False)
        self.fake = score_of(fake, store, config)

    def draw_range(self, shift: float, generator: torch.Generator) -> tuple[float, float]:
        """Between which noise levels a step asks the scores: all, or those of one expert of a pair."""
        return self.real.draw_range(shift, generator) if isinstance(self.real, PairScore) else ALL_LEVELS

    @torch.no_grad()
    def direction(self, rollout: ScoredRollout, clip: slice, level: Tensor, noise: Tensor) -> Tensor:
        """Where a clip's latents should go, ``[B, L, C, h, w]``: the real minus the fake clean estimate of its noisy
        version at ``level [B]``, over its mean distance from the real one (DMD, arXiv:2311.18828, Eq. 8), or, as
        Algorithm 1 has it, the fake minus the real velocity."""
        x, noisy = self._noisy(rollout, clip, level, noise)
        window = rollout.window(clip)
        v_real = self.real.guided_velocities(window, noisy, self.config.guidance)
        v_fake = self.fake.guided_velocities(window, noisy, 1.0)
        if not self.config.normalised:
            return v_fake - v_real
        sigma = level[:, None, None, None, None]
        real = noisy.latents - sigma * v_real
        distance = (x - real).abs().mean(dim=(1, 2, 3, 4), keepdim=True)
        return sigma * (v_fake - v_real) / distance.clamp_min(1e-6)

    def fake_losses(self, rollout: ScoredRollout, levels: Tensor, noise: Tensor) -> Iterator[Tensor]:
        """Flow matching of the fake score on each clip, at ``levels [clips, B]`` with ``noise [B, T, C, h, w]``; their
        sum is the mean over clips."""
        for clip, level in zip(rollout.clips, levels, strict=True):
            x, noisy = self._noisy(rollout, clip, level, noise)
            predicted = self.fake.guided_velocities(rollout.window(clip), noisy, 1.0)
            yield (predicted - (noise[:, clip] - x)).square().mean() / len(rollout.clips)

    def _noisy(self, rollout: ScoredRollout, clip: slice, level: Tensor, noise: Tensor) -> tuple[Tensor, Noisy]:
        """A clip, and its noisy version at one level per row."""
        x = rollout.batch["latents"][:, clip]
        return x, Noisy(add_noise(x, noise[:, clip], level), level[:, None].expand(x.shape[:2]))


class PairScore(nn.Module):
    """The score of a large world of two experts: all rows are asked at levels of one of them (`draw_range`), which
    alone answers, and learns."""

    def __init__(self, pair: TrainablePair, store: LatentStore, config: StableForcingConfig) -> None:
        super().__init__()
        self.draw_range, self._expert_at = pair.draw_range, pair.expert_at
        self.experts = nn.ModuleDict({name: HistoryStage(world, store, config) for name, world in pair.experts.items()})

    def guided_velocities(self, batch: dict[str, Tensor], noisy: Noisy, guidance: float) -> Tensor:
        """As of the one expert's `HistoryStage`."""
        return self._asked(noisy).guided_velocities(batch, noisy, guidance)

    def weights(self) -> dict[str, Tensor]:
        """The tensors of both experts."""
        stages = self.experts.items()
        return {f"{name}.{key}": value for name, stage in stages for key, value in stage.weights().items()}

    def _asked(self, noisy: Noisy) -> HistoryStage:
        return self.experts[self._expert_at(float(noisy.levels.mean()))]


def score_of(world: World | Trainable, store: LatentStore, config: StableForcingConfig) -> HistoryStage | PairScore:
    """What scores clips by a world of either kind."""
    return (PairScore if isinstance(world, TrainablePair) else HistoryStage)(world, store, config)


def check_teacher(teacher: World, student: World) -> None:
    """Raises ValueError when the worlds' latents differ, or the memory that they read: a score that sees another memory
    than the student did misjudges its clips."""
    for what in ("memory", "chunk_latents", "video"):
        theirs, ours = getattr(teacher.config, what), getattr(student.config, what)
        if theirs != ours:
            raise ValueError(f"the teacher's {what} is {theirs} and the student's {ours}; give a teacher of the same")
    if not student.shares_codec(teacher):
        raise ValueError("the teacher has another codec than the student; give a teacher trained on the same latents")
