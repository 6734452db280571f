"""Wan weights in the diffusers format: our transformer is theirs until it learns more."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from world_model.large import load_base
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


@torch.no_grad()
@pytest.mark.parametrize("with_picture", [True, False])
def test_the_first_step_equals_diffusers_wan_transformer(toy, tmp_path, with_picture):
    config = replace(toy, world=replace(toy.world, transformer=replace(toy.world.transformer, width=48)))
    model, files = wan(config, config.input_channels if with_picture else 4, tmp_path)
    expert = load_base(files, config)
    x, text, rows = torch.randn(2, 3, 12, 8, 8), torch.randn(2, config.text_tokens, 8), torch.randn(2, 3, 6)
    (velocity,) = evaluate(expert, x, 437.0, 0, rows, text)
    theirs = model(
        hidden_states=(x if with_picture else x[:, :, :4]).transpose(1, 2),
        timestep=torch.full((2,), 437),
        encoder_hidden_states=text,
    ).sample.transpose(1, 2)
    assert (velocity - theirs).norm() < 1e-4 * theirs.norm()


def test_a_base_model_that_does_not_fit_is_refused_by_name(toy, tmp_path):
    _, files = wan(toy, 4, tmp_path)
    tensors = load_file(files[0])
    del tensors["blocks.0.attn1.to_q.weight"]
    tensors["image_embedder.weight"] = torch.zeros(1)
    save_file(tensors, files[0])
    with pytest.raises(ValueError, match="1 missing .blocks.0.attn1.to_q.weight.; 1 unknown .image_embedder.weight."):
        load_base(files, toy)


@torch.no_grad()
def test_the_wan_codec_equals_diffusers_whole_and_streaming():
    diffusers = pytest.importorskip("diffusers")
    from world_model.codec.wan import WanCodec

    torch.manual_seed(0)
    vae = diffusers.AutoencoderKLWan(base_dim=8, dim_mult=[1, 1, 2, 2], num_res_blocks=1).eval()
    codec, frames = WanCodec(vae), torch.rand(1, 13, 3, 16, 16) * 2 - 1
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
    assert volume.shape == (1, 4, 20, 2, 2) and volume[0, 0, :4].eq(1).all() and volume[0, 1:, :4].eq(0).all()
    torch.testing.assert_close(volume[0, 0, 4:], latents[0, 0])
