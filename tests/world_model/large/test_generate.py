"""Videos chunk by chunk from random experts: lengths, seeds, and which caption is in force."""

from __future__ import annotations

import pytest
import torch

from world_model.large.folder import LargeWorld
from world_model.large.generate import NEGATIVE, generate


@pytest.fixture(scope="module")
def experts(toy, lively_experts):
    return {variant: lively_experts(LargeWorld(toy, variant)) for variant in ("fast", "ar", "bi")}


@pytest.fixture
def run(experts, blocks):
    def run(variant, captions=("a", "a", "b"), seed=0, image=None):
        heard = []

        def encode(text):
            heard.append(text)
            return torch.full((2, 8), float(len(text) + ord(text[0]) % 7))

        image = torch.arange(3 * 48 * 48, dtype=torch.uint8).reshape(3, 48, 48) if image is None else image
        rows = torch.zeros(4 * len(captions), 6)
        made = generate(experts[variant], variant, blocks, encode, image, rows, captions, seed, steps=2)
        return list(made), heard

    return run


@pytest.mark.parametrize("variant", ["fast", "ar", "bi"])
def test_the_first_chunk_has_13_frames_and_the_others_16(run, variant):
    made, heard = run(variant)
    assert [tuple(frames.shape) for frames in made] == [(13, 3, 64, 64), (16, 3, 64, 64), (16, 3, 64, 64)]
    assert all(frames.dtype == torch.uint8 for frames in made)
    assert heard == ([] if variant == "fast" else [NEGATIVE]) + ["a", "b"]  # each text once


def test_a_seed_decides_the_video_and_a_caption_what_follows_it(run):
    first, again, other = (run("fast", seed=seed)[0] for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    changed, _ = run("fast", captions=("a", "c", "b"))
    assert torch.equal(first[0], changed[0]) and not torch.equal(first[1], changed[1])
    pictured, _ = run("fast", image=torch.zeros(3, 10, 10, dtype=torch.uint8))
    assert not torch.equal(first[0], pictured[0])
