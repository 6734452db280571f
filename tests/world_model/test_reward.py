"""Reward heads: what they answer, that files come back as they were, and what is said of files that do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from world_model.checkpoint import load_world, save_world
from world_model.config import TINY, RewardConfig
from world_model.reward import REWARD_FILE, RewardHeads, check_fit, codec_digest, heads_of, read_heads, save_heads
from world_model.world import World

CONFIG = RewardConfig(("walk", "collect"), TINY.latent_shape, window=2, widths=(4, 8, 2), hidden=8)


def opinionated(config: RewardConfig = CONFIG) -> RewardHeads:
    """Heads whose members disagree: their last layers are random, too."""
    heads = RewardHeads(config, seed=1)
    generator = torch.Generator().manual_seed(2)
    for member in heads.members:
        torch.nn.init.normal_(member.out.weight, generator=generator)
    return heads.eval().requires_grad_(False)


def batch(count: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, CONFIG.window, *CONFIG.latent_shape, generator=generator)


def test_untrained_heads_have_no_opinion_and_agree():
    said = RewardHeads(CONFIG).judge(batch())
    assert said.event.shape == (5, 2) and bool((said.event == 0.5).all()) and bool((said.spread == 0).all())


def test_calibration_scales_and_shifts_logits_and_rewards_are_amounts():
    heads = opinionated(replace(CONFIG, scales=(1.0, 0.0), shifts=(0.0, -2.0), amounts=(1.0, 3.0)))
    said = heads.judge(batch())
    logits = heads(batch())[..., 0]
    torch.testing.assert_close(said.event[:, 0], logits[..., 0].sigmoid().mean(0))
    torch.testing.assert_close(said.event[:, 1], torch.full((5,), -2.0).sigmoid())
    torch.testing.assert_close(said.reward, said.event * torch.tensor([1.0, 3.0]))
    assert bool((said.spread[:, 0] > 0).all()) and bool((said.spread[:, 1] == 0).all())


def test_every_latent_of_the_window_counts():
    heads, latents = opinionated(), batch()
    usual = heads.judge(latents).event
    for place in range(CONFIG.window):
        other = latents.clone()
        other[:, place] += 1
        assert not torch.equal(heads.judge(other).event, usual)


def test_a_file_brings_back_weights_and_configuration(tmp_path):
    config = replace(CONFIG, scales=(0.5, 2.0), thresholds=(0.25, 0.75), codec="abc")
    heads = opinionated(config)
    save_heads(heads, tmp_path / "new" / REWARD_FILE)
    back = read_heads(tmp_path / "new" / REWARD_FILE)
    assert back.config == config
    assert [path.name for path in (tmp_path / "new").iterdir()] == [REWARD_FILE]
    np.testing.assert_allclose(back.judge(batch()).event, heads.judge(batch()).event, atol=0.02)  # bfloat16


def test_files_that_hold_no_heads_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="wp2 train reward"):
        read_heads(tmp_path / REWARD_FILE)
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    (tmp_path / "text").write_text("hello")
    for name in ("other", "text"):
        with pytest.raises(ValueError, match=f"{name} holds no reward heads"):
            read_heads(tmp_path / name)
    save_heads(opinionated(), tmp_path / "damaged")
    (tmp_path / "damaged").write_bytes((tmp_path / "damaged").read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged"):
        read_heads(tmp_path / "damaged")


def test_a_world_brings_the_heads_of_its_folder_in_every_dtype(tmp_path):
    world = World.random("tiny")
    assert heads_of(world) is None
    save_world(world, tmp_path)
    assert heads_of(load_world(tmp_path)) is None
    save_heads(opinionated(replace(CONFIG, codec=codec_digest(world.codec))), tmp_path / REWARD_FILE)
    for dtype in ("float32", "bfloat16"):
        assert heads_of(load_world(tmp_path, dtype=dtype)).tasks == ("walk", "collect")


def test_heads_of_another_codec_are_refused():
    world, other = World.random("tiny", seed=0), World.random("tiny", seed=1)
    heads = opinionated(replace(CONFIG, codec=codec_digest(world.codec)))
    check_fit(heads, world, "file")
    with pytest.raises(ValueError, match="another codec"):
        check_fit(heads, other, "file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ()}, "at least one"),
        ({"tasks": ("walk", "walk")}, "each once"),
        ({"thresholds": (0.5,)}, "1 thresholds for 2"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RewardConfig(**{"tasks": ("walk", "collect"), "latent_shape": (4, 4, 4)} | change)
