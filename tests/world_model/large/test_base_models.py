"""Wan weights in the diffusers format: our transformer is theirs until it learns more."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from world_model.large import LargeConfig, load_base
from world_model.large.base_models import base_files
from world_model.large.conditioning import condition_volume
from world_model.large.denoise import evaluate


def wan(toy, channels, folder):
    """A random diffusers transformer of the toy world's sizes, and its file."""
    diffusers = pytest.importorskip("diffusers")
    sizes = toy.world.transformer
    torch.manual_seed(0)
    model = diffusers.WanTransformer3DModel(
        num_attention_heads=sizes.heads,
        attention_head_dim=sizes.width // sizes.heads,
        in_channels=channels,
        out_channels=toy.world.codec.latent_channels,
        text_dim=toy.world.text.width,
        freq_dim=sizes.frequency_width,
        ffn_dim=sizes.ffn_width,
        num_layers=sizes.depth,
    ).requires_grad_(False)
    for value in model.parameters():
        value += 0.3 * torch.randn(value.shape) / max(1, value[0].numel() if value.ndim > 1 else 1) ** 0.5
    model.save_pretrained(folder)
    return model, [folder / "diffusion_pytorch_model.safetensors"]


@pytest.fixture
def wide(toy) -> LargeConfig:
    """A width that the rotary positions of both divide alike."""
    return replace(toy, world=replace(toy.world, transformer=replace(toy.world.transformer, width=48)))


@pytest.fixture
def newer(wide) -> LargeConfig:
    """The layout of the Wan2.2 model of 5 billion parameters: 16x in space, more channels, a head size of its own."""
    codec = replace(wide.world.codec, latent_channels=6, spatial_factor=16)
    world = replace(wide.world, codec=codec, video=replace(wide.world.video, height=128, width=256))
    return replace(wide, world=world, experts=("only",), condition_channels=10)


@torch.no_grad()
@pytest.mark.parametrize("with_picture", [True, False])
@pytest.mark.parametrize("layout", ["wide", "newer"])
def test_the_first_step_equals_diffusers_wan_transformer(request, tmp_path, layout, with_picture):
    config = request.getfixturevalue(layout)
    channels, (_, height, width) = config.world.codec.latent_channels, config.world.latent_shape
    model, files = wan(config, config.input_channels if with_picture else channels, tmp_path)
    expert = load_base(files, config)
    x, rows = torch.randn(2, 3, config.input_channels, height, width), torch.randn(2, 3, 6)
    text = torch.randn(2, config.text_tokens, 8)
    (velocity,) = evaluate(expert, x, 437.0, 0, rows, text)
    theirs = model(
        hidden_states=(x if with_picture else x[:, :, :channels]).transpose(1, 2),
        timestep=torch.full((2,), 437),
        encoder_hidden_states=text,
    ).sample.transpose(1, 2)
    assert (velocity - theirs).norm() < 1e-4 * theirs.norm()


@torch.no_grad()
def test_the_first_step_with_a_clean_first_latent_equals_diffusers(newer, tmp_path):
    """How the Wan2.2 model of 5 billion parameters is given a picture: as a first latent without noise."""
    model, files = wan(newer, 6, tmp_path)
    expert = load_base(files, newer)
    x, rows, text = torch.randn(2, 3, 16, 8, 16), torch.randn(2, 3, 6), torch.randn(2, newer.text_tokens, 8)
    timesteps = torch.tensor([0, 437, 437])
    (velocity,) = evaluate(expert, x, timesteps, 0, rows, text)
    theirs = model(
        hidden_states=x[:, :, :6].transpose(1, 2),
        timestep=timesteps.repeat_interleave(4 * 8).expand(2, -1),
        encoder_hidden_states=text,
    ).sample.transpose(1, 2)
    assert (velocity - theirs).norm() < 1e-4 * theirs.norm()


def test_new_modules_follow_their_seed_and_leave_torch_s_alone(toy, tmp_path):
    _, files = wan(toy, 4, tmp_path)
    torch.manual_seed(5)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    states = [load_base(files, toy, seed=seed).state_dict() for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    name = "transformer.blocks.1.action.hidden.weight"
    assert not torch.equal(states[0][name], states[2][name])
    for last in ("transformer.blocks.1.action.out.weight", "compressor.output.weight", "compressor.output.bias"):
        assert not states[0][last].any()


def test_weights_of_a_pipeline_are_found_by_expert(toy, tmp_path):
    for name in ("transformer", "transformer_2"):
        wan(toy, 4, tmp_path / name)
    for expert, place in (("only", "transformer"), ("high", "transformer"), ("low", "transformer_2")):
        (file,) = base_files(tmp_path, expert)
        assert file.parent.name == place and base_files(file, expert) == [file]
    assert base_files(tmp_path / "transformer", "only") == base_files(tmp_path, "only")
    with pytest.raises(FileNotFoundError, match="transformer_2/"):
        base_files(tmp_path / "transformer", "low")


def test_a_base_model_that_does_not_fit_is_refused_by_name(toy, tmp_path):
    _, files = wan(toy, 4, tmp_path)
    tensors = load_file(files[0])
    del tensors["blocks.0.attn1.to_q.weight"]
    tensors["image_embedder.weight"] = torch.zeros(1)
    save_file(tensors, files[0])
    with pytest.raises(ValueError, match="1 missing .blocks.0.attn1.to_q.weight.; 1 unknown .image_embedder.weight."):
        load_base(files, toy)


NEWER = {  # what tells the autoencoder of Wan2.2's 5 billion parameters from the older one
    "z_dim": 6,
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "decoder_base_dim": 12,
    "latents_mean": [0.1 * channel for channel in range(6)],
    "latents_std": [1.0 + channel for channel in range(6)],
}


@torch.no_grad()
@pytest.mark.parametrize(("settings", "factor", "channels"), [({}, 8, 16), (NEWER, 16, 6)])
def test_the_wan_codec_equals_diffusers_whole_and_streaming(settings, factor, channels):
    diffusers = pytest.importorskip("diffusers")
    from world_model.codec.wan import WanCodec

    torch.manual_seed(0)
    vae = diffusers.AutoencoderKLWan(base_dim=8, dim_mult=[1, 1, 2, 2], num_res_blocks=1, **settings).eval()
    codec, frames = WanCodec(vae), torch.rand(1, 13, 3, 2 * factor, 3 * factor) * 2 - 1
    latents, _ = codec.encode(frames)
    mean = vae.encode(frames.transpose(1, 2)).latent_dist.mean.transpose(1, 2)
    raw = latents * codec.latent_std.transpose(1, 2) + codec.latent_mean.transpose(1, 2)
    torch.testing.assert_close(raw, mean, rtol=1e-4, atol=1e-4)
    theirs = vae.decode(mean.transpose(1, 2)).sample.transpose(1, 2)
    whole, _ = codec.decode(latents)
    torch.testing.assert_close(whole, theirs, rtol=1e-4, atol=1e-4)
    pieces, state = [], None
    for latent in latents.split(1, dim=1):
        some, state = codec.decode(latent, state)
        pieces.append(some)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-4, atol=1e-4)
    first, state = codec.encode(frames[:, :5])
    rest, again = codec.encode(frames[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), latents, rtol=1e-4, atol=1e-4)
    assert torch.equal(codec.encode(frames[:, 5:], state)[0], rest)  # a state can be used again
    volume = condition_volume(codec, frames[0, 0], 4)
    assert volume.shape == (1, 4, 4 + channels, 2, 3) and volume[0, 0, :4].eq(1).all() and volume[0, 1:, :4].eq(0).all()
    torch.testing.assert_close(volume[0, 0, 4:], latents[0, 0])
