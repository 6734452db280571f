"""``wp2 generate`` from a control JSON to video files, through a world of random weights."""

from __future__ import annotations

import json

import cv2
import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from world_model.config import to_json
from world_model.large import Expert
from world_model.large.folder import LargeWorld
from wp2env.cli import generate

STATISTICS = {"latents_mean": [0.0] * 4, "latents_std": [1.0] * 4}


class Codec:
    """Shapes of a codec of 4x in time and 8x in space."""

    def encode(self, frames, state=None):
        latents = frames.shape[1] // 4 if state else 1 + (frames.shape[1] - 1) // 4
        return frames[:, :1, :1, ::8, ::8].expand(-1, latents, 4, -1, -1), [True]

    def decode(self, latents, state=None):
        count = 4 * latents.shape[1] - (0 if state else 3)
        frames = latents[:, :1, :3].repeat_interleave(8, 3).repeat_interleave(8, 4)
        return frames.expand(-1, count, -1, -1, -1).clamp(-1, 1), [True]


@pytest.fixture
def world(large, tmp_path, monkeypatch):
    """A folder with a world, a picture and a control JSON; the words that generate from it."""
    torch.manual_seed(0)
    experts = {name: Expert(large, few_step=True).requires_grad_(False) for name in ("high", "low")}
    monkeypatch.setattr(generate, "open_experts", lambda *given: experts)
    (tmp_path / "config.json").write_text(to_json(LargeWorld(large, "fast")))
    cv2.imwrite(str(tmp_path / "hall.png"), np.zeros((20, 30, 3), np.uint8))
    prompts = {"prompt1": "The scene in the video is: a hall.", "prompt2": "The scene in the video is: a street."}
    entry = {
        "image_path": "hall.png",
        "perspective": "fps",
        "action": "w-4,up-4",
        "prompt_event": "prompt1-4,prompt2-4",
    }
    (tmp_path / "in.json").write_text(json.dumps([entry | prompts, entry | prompts | {"output_name": "again"}]))
    return ["generate", "--input-json", tmp_path / "in.json", "--world", tmp_path, "--out", tmp_path, "--device", "cpu"]


@pytest.mark.parametrize("options", [(), ("--tile", "32")])
def test_every_entry_becomes_a_video_of_13_and_16_frames(wp2, world, tmp_path, monkeypatch, options):
    monkeypatch.setattr(generate, "open_codec", lambda settings, device: Codec())
    monkeypatch.setattr(generate, "open_text", lambda settings, device: lambda text: torch.zeros(2, 8))
    answer = wp2(*world, *options)
    assert answer.code == 0 and answer.out.count("29 frames") == 2
    for name in ("0_hall", "again"):
        frames = imageio.mimread(tmp_path / f"{name}.mp4", memtest=False)
        assert len(frames) == 29 and frames[0].shape == (64, 64, 3)


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_weights_are_kept_as_asked_and_one_expert_at_a_time(wp2, world, large, tmp_path, monkeypatch, weights):
    monkeypatch.undo()
    opened, open_experts = [], generate.open_experts
    monkeypatch.setattr(generate, "open_experts", lambda *given: opened.append(open_experts(*given)) or opened[0])
    monkeypatch.setattr(generate, "open_codec", lambda settings, device: Codec())
    monkeypatch.setattr(generate, "open_text", lambda settings, device: lambda text: torch.zeros(2, 8))
    for name in ("high", "low"):
        save_file(Expert(large, few_step=True).state_dict(), tmp_path / f"{name}-00001.safetensors")
    answer = wp2(*world, "--weights", weights, "--swap-experts")
    assert answer.code == 0 and answer.out.count("29 frames") == 2
    (experts,) = opened
    assert experts.moves > 4 and any(True for _ in experts["low"].buffers()) == (weights == "int8")


def test_a_check_says_what_is_asked_for(wp2, world):
    answer = wp2(*world, "--check")
    assert answer.code == 0
    assert answer.out.startswith("0_hall: 8 latents in 2 chunks, 1 change of caption") and "again: " in answer.out


def test_codec_and_text_are_opened_from_folders(wp2, world, tmp_path):
    diffusers, transformers = pytest.importorskip("diffusers"), pytest.importorskip("transformers")
    pytest.importorskip("ftfy")
    from tokenizers import Tokenizer, models, pre_tokenizers

    vae = diffusers.AutoencoderKLWan(base_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1, z_dim=4, **STATISTICS)
    vae.save_pretrained(tmp_path / "vae")
    sizes = {"vocab_size": 8, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    transformers.UMT5EncoderModel(transformers.UMT5Config(**sizes)).save_pretrained(tmp_path / "text")
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "hall": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    given = ["--codec", tmp_path / "vae", "--text", tmp_path / "text", "--tokenizer", tmp_path / "tokenizer"]
    answer = wp2(*world, *given)
    assert answer.code == 0 and answer.out.count("29 frames") == 2


def test_tiles_that_do_not_divide_are_refused(wp2, world, monkeypatch):
    monkeypatch.setattr(generate, "open_codec", lambda settings, device: Codec())
    monkeypatch.setattr(generate, "open_text", lambda settings, device: lambda text: torch.zeros(2, 8))
    assert "tiles have 33 pixels a side; give a multiple of 32" in wp2(*world, "--tile", "33").error


def test_what_is_missing_is_said_in_one_sentence(wp2, world, tmp_path):
    assert "--companions" in wp2(*world).error and "--codec" in wp2(*world).error
    assert "does not exist" in wp2(*world, "--out", tmp_path / "none").error
    (tmp_path / "hall.png").write_text("no picture")
    assert "hall.png is no picture" in wp2(*world).error
    (tmp_path / "in.json").write_text("{}")
    assert "must hold an array" in wp2(*world).error
    (tmp_path / "in.json").unlink()
    assert "in.json: No such file" in wp2(*world).error
    (tmp_path / "config.json").unlink()
    assert "wp2 convert" in wp2(*world).error
