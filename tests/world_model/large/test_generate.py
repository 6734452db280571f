"""Videos chunk by chunk from random experts: lengths, seeds, and which caption is in force."""

from __future__ import annotations

import pytest
import torch

from world_model.large import Expert
from world_model.large.generate import NEGATIVE, generate


class Blocks:
    """A codec of 4x in time and 8x in space that averages and repeats; its state is how many frames there were."""

    def encode(self, frames, state=None):
        first = frames[:, :1] if state is None else frames[:, :0]
        rest = frames[:, first.shape[1] :]
        rest = rest[:, : rest.shape[1] // 4 * 4].unflatten(1, (-1, 4)).mean(2)
        latents = torch.cat([first, rest], dim=1).unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).mean((-1, -3))
        return latents[:, :, [0, 1, 2, 0]], [frames.shape[1]]

    def decode(self, latents, state=None):
        frames = latents[:, :, :3].repeat_interleave(8, 3).repeat_interleave(8, 4)
        frames = frames.repeat_interleave(4, 1)
        return (frames[:, 3:] if state is None else frames).clamp(-1, 1), [latents.shape[1]]


@pytest.fixture(scope="module")
def experts(toy):
    def build(few_step):
        torch.manual_seed(0)
        pair = {name: Expert(toy, few_step).eval().requires_grad_(False) for name in ("high", "low")}
        for expert in pair.values():
            for value in expert.parameters():
                value += torch.randn(value.shape) * (0.3 if value.ndim < 2 else 1 / value[0].numel() ** 0.5)
        return pair

    return {"fast": build(True), "ar": build(False), "bi": build(False)}


def run(experts, variant, captions=("a", "a", "b"), seed=0, image=None):
    heard = []

    def encode(text):
        heard.append(text)
        return torch.full((2, 8), float(len(text) + ord(text[0]) % 7))

    image = torch.arange(3 * 48 * 48, dtype=torch.uint8).reshape(3, 48, 48) if image is None else image
    rows = torch.zeros(4 * len(captions), 6)
    made = generate(experts[variant], variant, Blocks(), encode, image, rows, captions, seed, steps=2)
    return list(made), heard


@pytest.mark.parametrize("variant", ["fast", "ar", "bi"])
def test_the_first_chunk_has_13_frames_and_the_others_16(experts, variant):
    made, heard = run(experts, variant)
    assert [tuple(frames.shape) for frames in made] == [(13, 3, 64, 64), (16, 3, 64, 64), (16, 3, 64, 64)]
    assert all(frames.dtype == torch.uint8 for frames in made)
    assert heard == ([] if variant == "fast" else [NEGATIVE]) + ["a", "b"]  # each text once


def test_a_seed_decides_the_video_and_a_caption_what_follows_it(experts):
    first, again, other = (run(experts, "fast", seed=seed)[0] for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    changed, _ = run(experts, "fast", captions=("a", "c", "b"))
    assert torch.equal(first[0], changed[0]) and not torch.equal(first[1], changed[1])
    pictured, _ = run(experts, "fast", image=torch.zeros(3, 10, 10, dtype=torch.uint8))
    assert not torch.equal(first[0], pictured[0])
