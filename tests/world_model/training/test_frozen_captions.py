"""A stage that does not train the caption encoder reads captions as rollouts do, and leaves its statistics alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from world_model.config import TINY
from world_model.text import to_bytes
from world_model.training.few_step import FewStepStage
from world_model.training.history import HistoryStage
from world_model.training.latents import LatentStore
from world_model.training.stage import Stage
from world_model.world import World


@pytest.fixture(scope="module")
def latents(stripes) -> LatentStore:
    return LatentStore(stripes, World.random(TINY).codec, TINY)


def trained_for_a_step(stage: Stage) -> Stage:
    stage.train()
    stage(stage.batch(torch.Generator().manual_seed(0), 0))
    return stage


def test_a_frozen_encoder_keeps_its_statistics_and_reads_each_caption_alone(latents):
    settings = replace(TINY.curriculum.few_step, batch=2, frames=3, history=0, blocks=(1, 1))
    stage = trained_for_a_step(FewStepStage(World.random(TINY).with_blocks((1, 1)), latents, settings))
    codes = to_bytes(["rain", "snow", "a hall"], TINY.text.max_bytes)
    for world in (stage.world, stage.teacher.world):
        assert not world.text.standardise.running_mean.any(), "as it began"
        torch.testing.assert_close(world.text(codes)[:1], world.text(codes[:1]))


def test_an_encoder_that_learns_still_gathers_them(latents):
    settings = replace(TINY.curriculum.history, batch=2, frames=3, history=0)
    stage = trained_for_a_step(HistoryStage(World.random(TINY), latents, settings))
    assert stage.world.text.standardise.running_mean.any()
