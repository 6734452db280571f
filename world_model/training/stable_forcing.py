"""Stage 7: Stable Forcing (Algorithm 1), distribution matching on the student's own full rollouts.

    1  roll the student out over all chunks without gradients; keep a random evaluation's input of each chunk
    2  cut the rollout into clips; the frozen teacher and the fake score say for each where it should go (`clip_scores`)
    3  replay each chunk's one evaluation with gradients, towards its clip's direction; one graph alive at a time

then the fake score learns the student's clips by flow matching, so that it keeps up with what the student makes.

Stage 3 takes the loss ``|| z - sg(z + direction) ||^2 / 2`` of a replayed clean prediction ``z``, whose gradient is
``- direction``. Paper and code print the opposite of the direction; both signs are easy to lose, and a test holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from world_model.config import StableForcingConfig
from world_model.flow import shift_levels, training_levels
from world_model.training.clip_scores import ClipScores, ScoredRollout, check_teacher
from world_model.training.collapse import CollapseWatch, Look
from world_model.training.large_rollout import student_of
from world_model.training.latents import LatentStore
from world_model.training.objective import NetworkStage
from world_model.training.processes import average
from world_model.training.self_rollout import Rollout
from world_model.training.stage import Judgement
from world_model.world import World

LEVEL_RANGE = 0.02, 0.98  # of the scores' noise before the shift: at the very ends their difference says nothing


class StableForcingStage(NetworkStage):
    """Trains a few-step student against a bidirectional teacher with memory (the outcome of the history stage).

    From a world without interval heads it is the ablation without few-step initialisation: the student then begins as
    the Euler solver of as many steps. Gradients are summed inside ``forward``.

    Raises:
        ValueError: when the teacher does not fit (`check_teacher`), or rollouts and clips do not split into chunks.
    """

    name = "stable_forcing"
    settings_name = "stable_forcing"  # of the ablations, too
    rows = {"exits": None, "levels": 1, "fake_levels": 1, "fresh": 1}
    config: StableForcingConfig
    truncated = False  # a chunk of a rollout always runs through all of its evaluations

    def __init__(self, world: World, store: LatentStore, config: StableForcingConfig, teacher: World) -> None:
        super().__init__(world, store, config)
        check_teacher(teacher, world)
        n, layouts = world.config.chunk_latents, world.layouts
        whole = config.start > 0 and layouts.first_of(layouts.chunk_of(config.start, n), n) == config.start
        if not whole or config.frames % n:
            begins = ", ".join(str(layouts.first_of(chunk, n)) for chunk in (1, 2, 3))
            raise ValueError(
                f"{config.start} true latents and clips of {config.frames} do not split into chunks of {n}; choose "
                f"{begins} or so on for start and a multiple of {n} for frames"
            )
        world.text.requires_grad_(False)
        self.student = student_of(world)
        self.scores = ClipScores(self.seeing(teacher), store, config)
        self.watch = CollapseWatch()

    @classmethod
    def starts_from(cls, world: World) -> World:
        """The world itself when it was distilled; else with heads that are copies of its last layer."""
        return world if world.config.flow.blocks else world.with_blocks(world.config.curriculum.few_step.blocks)

    def seeing(self, teacher: World) -> World:
        """The teacher with the memory that the scores see: the compressed one that it was trained with."""
        return teacher

    def hidden_matrices(self) -> Iterator[nn.Parameter]:
        return iter(())  # directions are noisy: AdamW's small steps, not Muon's full ones

    def rates(self) -> list[tuple[list[nn.Parameter], float]]:
        fake = [parameter for parameter in self.scores.parameters() if parameter.requires_grad]
        return [(fake, self.config.score_learning_rate / self.config.learning_rate)]

    def weights(self) -> dict[str, Tensor]:
        """The student's tensors, named as in a world, the fake score's, and what the watch remembers."""
        fake = {f"fake.{name}": value for name, value in self.scores.fake.weights().items()}
        return super().weights() | fake | {f"watch.{name}": value for name, value in self.watch.named_buffers()}

    def batch(self, generator: torch.Generator, step: int) -> dict[str, Tensor]:
        config, n = self.config, self.world.config.chunk_latents
        blocks = len(self.world.config.flow.blocks)
        clips, shift = self._clips(step), self.world.config.flow.shift
        batch = self.store.windows(config.batch, config.start + clips * config.frames, generator)
        within = self.scores.draw_range(shift, generator)
        lowest, highest = (shift_levels(level, 1 / shift) for level in within)
        low, high = max(LEVEL_RANGE[0], lowest), min(LEVEL_RANGE[1], highest)
        levels = low + (high - low) * torch.rand(clips, config.batch, generator=generator)
        allowed = [n for n in config.evaluations if blocks % n == 0] or [blocks]
        evaluations = allowed[int(torch.randint(len(allowed), (), generator=generator))]
        return batch | {
            **self.student.draw(batch["latents"].shape, evaluations, generator),
            "evaluations": torch.tensor(evaluations),
            "exits": torch.randint(evaluations, (clips * config.frames // n,), generator=generator),
            "levels": shift_levels(levels, shift).clamp(*within),
            "level_noise": torch.randn(batch["latents"].shape, generator=generator),
            "fake_levels": training_levels((clips, config.batch), shift, generator, within),
            "fake_noise": torch.randn(batch["latents"].shape, generator=generator),
            "for_student": torch.tensor(step % config.ratio == 0),
            "look": torch.tensor(step % config.watch_steps == 0),
        }

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        exits, evaluations = batch["exits"].tolist(), int(batch["evaluations"])
        rollout = self.student.roll_out(batch, self.config.start, exits, evaluations, self.truncated)
        coarse = self.student.coarse(rollout)
        scored = ScoredRollout.of(batch, rollout.latents, coarse, self._cut(rollout))
        metrics = self._look(batch, rollout) if batch["look"] else {}
        if batch["for_student"]:
            metrics["direction"] = self.update_student(batch, rollout, scored)
        losses = self.scores.fake_losses(scored, batch["fake_levels"], batch["fake_noise"])
        total = 0.0
        for number, loss in enumerate(losses, start=1):
            total += loss.detach()
            if number < len(scored.clips):
                loss.backward()  # one clip's graph at a time here, too; the last one's is the loop's
        return loss, metrics | {"fake": total}

    def update_student(self, batch: dict[str, Tensor], rollout: Rollout, scored: ScoredRollout) -> Tensor:
        """Stages 2 and 3: sum the student's gradients; gives the directions' root mean square."""
        where_to = torch.cat(
            [
                self.scores.direction(scored, clip, level, batch["level_noise"])
                for clip, level in zip(scored.clips, batch["levels"], strict=True)
            ],
            dim=1,
        )
        for where, clean in self.student.replay(batch, rollout):
            of_chunk = where_to[:, where.start - rollout.start : where.stop - rollout.start]
            (matching_loss(clean, of_chunk) / len(rollout.moments)).backward()
        return where_to.square().mean().sqrt()

    def judge(self, metrics: dict[str, Tensor]) -> Judgement:
        if "response" not in metrics:
            return Judgement()
        return Judgement(*self.watch.judge(*self._looks, float(metrics["response"])))

    def _clips(self, step: int) -> int:
        """How many clips the rollout of a step has: it grows, as far as the recordings last."""
        config = self.config
        room = (self.store.longest - config.start) // config.frames
        if room < 1:
            raise ValueError(
                f"the longest recording has {self.store.longest} latents, and a rollout of one clip takes "
                f"{config.start + config.frames}; record longer clips"
            )
        grown = min(1.0, (step + 1) / max(1, config.growth_steps))
        return min(1 + int(grown * (config.clips - 1)), room)

    def _cut(self, rollout: Rollout) -> list[slice]:
        """Where the clips of a rollout are."""
        size = self.config.frames
        return [slice(first, first + size) for first in range(rollout.start, rollout.latents.shape[1], size)]

    @torch.no_grad()
    def _look(self, batch: dict[str, Tensor], rollout: Rollout) -> dict[str, Tensor]:
        """How each clip looks beside the recorded ones, and how the student answers actions."""
        clips, r, start = len(self._cut(rollout)), self.student.r, rollout.start
        recorded = self.student.decode(batch["latents"])
        seen = Look.of(rollout.frames[:, start * r :], clips)
        true = Look.of(recorded[:, 1 + (start - 1) * r :], clips)
        self._looks = seen, true
        response = self.student.response(batch, start)
        average([response, *vars(seen).values(), *vars(true).values()])  # all processes have to judge alike
        metrics = {"response": response, "distance": torch.tensor(CollapseWatch.distance(seen, true))}
        for name, values in vars(seen).items():
            metrics |= {f"{name}_{number}": value for number, value in enumerate(values, start=1)}
            metrics[f"{name}_true"] = getattr(true, name).mean()
        return metrics


class TruncatedForcingStage(StableForcingStage):
    """Ablation: a chunk ends at its random evaluation, as in Self Forcing, so the history holds early guesses."""

    name = "truncated_forcing"
    truncated = True


class FullContextForcingStage(StableForcingStage):
    """Ablation: the scores see everything before a clip at full resolution, in place of compressed memory."""

    name = "full_context_forcing"

    def seeing(self, teacher: World) -> World:
        everything = self.config.start + self.config.clips * self.config.frames
        return teacher.with_memory(replace(teacher.config.memory, budget_slots=0, adjacent_latents=everything))


def matching_loss(clean: Tensor, direction: Tensor) -> Tensor:
    """The loss whose gradient with respect to ``clean`` is minus ``direction``, over the number of elements."""
    return 0.5 * functional.mse_loss(clean.float(), (clean + direction).detach().float())
