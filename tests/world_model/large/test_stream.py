"""Large worlds as streams: the first chunk, slots that live separate lives, exact snapshots, what generation writes."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from world_model.controls import StructuredCaption
from world_model.large.folder import LargeWorld
from world_model.large.generate import generate
from world_model.large.stream import MAX_LATENTS
from world_model.large.world import LoadedWorld

HALL, STREET = StructuredCaption("a hall"), StructuredCaption("a street")


def encode(text):
    return torch.full((2, 8), float(len(text) + ord(text[-2]) % 7))


@pytest.fixture(scope="module")
def worlds(toy, single, blocks, lively_experts):
    found = {}
    for variant, config in (("fast", toy), ("ar", toy), ("base", single)):
        large = LargeWorld(config, variant)
        found[variant] = LoadedWorld(large, lively_experts(large), blocks, encode)
    return found


def picture(seed, frames=1):
    return np.random.default_rng(seed).integers(0, 256, (frames, 64, 64, 3), dtype=np.uint8)


def rows(seed, slots, latents=4):
    return torch.randn(slots, latents, 6, generator=torch.Generator().manual_seed(seed))


def started(world, slots=2, **options):
    stream = world.stream(slots, **options)
    given = range(slots)
    stream.reset(given, [picture(slot) for slot in given], [HALL] * slots, given)
    return stream


def test_a_reset_shows_the_picture_and_the_first_chunk_begins_with_it(worlds):
    stream = worlds["fast"].stream(1)
    assert torch.equal(stream.reset([0], [picture(3)], [HALL], [0]), torch.from_numpy(picture(3)))
    first = stream.step(rows(0, 1))
    assert first.shape == (1, 16, 64, 64, 3) and first.dtype == torch.uint8
    assert all(torch.equal(first[0, frame], first[0, 0]) for frame in range(4))  # 13 frames, the first one repeated
    assert not torch.equal(first[0, 0], first[0, 4])
    assert stream.step(rows(1, 1)).shape == first.shape
    assert stream.steps_taken.tolist() == [8] and stream.latents.shape == (1, 4, 4, 8, 8)


def test_a_stream_shows_what_generation_writes(worlds, blocks):
    """The first chunk, that is; generation draws the noise of all chunks at once, a stream that of one at a time."""
    world, controls = worlds["ar"], rows(0, 1)
    controls[:, 0, :4], controls[:, 0, 5] = 0, 0
    stream = started(world, 1, sampling_steps=2)
    shown = stream.step(controls)
    image = torch.from_numpy(picture(0)[0]).movedim(-1, 0)
    (made,) = generate(world.experts, "ar", blocks, encode, image, controls[0], [HALL.text()], seed=0, steps=2)
    torch.testing.assert_close(shown[0, 3:], made.movedim(1, -1), atol=1, rtol=0)


def test_no_control_leads_to_the_start_picture(worlds):
    streams, given = [started(worlds["fast"], 1) for _ in range(3)], rows(0, 1)
    later, first = given.clone(), given.clone()
    later[:, 1, 1] += 20
    first[:, 0, 1] += 20
    plain, of_later, of_first = (s.step(some) for s, some in zip(streams, (given, later, first), strict=True))
    assert torch.equal(plain, of_first) and not torch.equal(plain, of_later)
    assert not torch.equal(streams[0].step(given), streams[2].step(first))


def test_a_slot_does_not_depend_on_the_others(worlds):
    calm, busy = started(worlds["fast"]), started(worlds["fast"])
    for step in range(3):
        given = rows(step, 2)
        frames = calm.step(given)
        given[1] += 1
        if step == 1:
            busy.reset([1], [picture(9)], [STREET], [77])
            busy.set_caption([1], event="fog rolls in")
        assert torch.equal(frames[0], busy.step(given)[0])
    assert busy.steps_taken.tolist() == [12, 8]


@pytest.mark.parametrize("variant", ["fast", "ar", "base"])
def test_restoring_a_snapshot_reproduces_frames_bit_for_bit(worlds, variant):
    steps = None if variant == "fast" else 2
    assert worlds[variant].evaluations == (4 if variant == "fast" else 40)
    stream = started(worlds[variant], 1, sampling_steps=steps)
    latents = stream.latents_per_chunk
    stream.step(rows(0, 1, latents))
    saved = pickle.loads(pickle.dumps(stream.snapshot()))
    first = stream.step(rows(1, 1, latents))
    stream.set_caption([0], event="fog rolls in")
    for again in (stream, worlds[variant].stream(1, sampling_steps=steps)):
        again.restore(saved)
        assert again.captions == [HALL]
        assert torch.equal(again.step(rows(1, 1, latents)), first)


def test_seeds_captions_and_pictures_decide_and_torch_s_generator_does_not(worlds):
    def frames(start=0, caption=HALL, seed=0):
        torch.manual_seed(seed + 1)
        stream = worlds["fast"].stream(1)
        stream.reset([0], [picture(start)], [caption], [seed])
        return stream.step(rows(0, 1))

    plain = frames()
    assert torch.equal(plain, frames())
    for other in (frames(start=1), frames(caption=STREET), frames(seed=1)):
        assert not torch.equal(plain, other)


def test_more_frames_are_history_and_a_caption_alone_makes_a_first_chunk(worlds):
    stream = worlds["fast"].stream(2)
    frames = stream.reset([0, 1], [picture(0, 17), None], [HALL, HALL], [0, 1])
    assert torch.equal(frames[0], torch.from_numpy(picture(0, 17)[-1]))
    assert stream.steps_taken.tolist() == [4, 4]
    remembered = stream.step(rows(0, 2))
    stream.reset([0], [picture(1, 17)], [HALL], [0])
    stream.reset([1], [None], [HALL], [1])
    other = stream.step(rows(0, 2))
    assert not torch.equal(remembered[0], other[0]) and torch.equal(remembered[1], other[1])


def test_a_picture_is_the_first_latent_where_the_weights_want_it_so(worlds, blocks):
    stream = started(worlds["base"], 1, sampling_steps=2)
    stream.step(rows(0, 1, 20))
    expected, _ = blocks.encode(torch.from_numpy(picture(0)).movedim(-1, -3)[None] / 127.5 - 1)
    torch.testing.assert_close(stream.latents[0, 0], expected[0, 0])
    second = stream.latents
    stream.step(rows(1, 1, 20))
    assert not torch.allclose(stream.latents[0, 0], second[0, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.step(torch.zeros(1, 4, 6)), "take"),
        (lambda s: s.step(torch.full((2, 4, 6), torch.nan)), "finite"),
        (lambda s: s.reset([5], [None], [HALL], [0]), "slot 5"),
        (lambda s: s.reset([0], [np.zeros((1, 8, 8, 3), np.uint8)], [HALL], [0]), "shape"),
        (lambda s: s.reset([0], [picture(0, 14)], [HALL], [0]), "1 . a multiple of 16"),
        (lambda s: s.reset([0], [picture(0)], [HALL], [0, 1]), "as many"),
        (lambda s: s.reset([0], [picture(0)], [HALL], [0], [np.zeros((2, 6))]), "action rows"),
        (lambda s: s.set_caption([9], event="x"), "slot 9"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(worlds, call, message):
    stream = started(worlds["fast"])
    before = stream.snapshot()
    with pytest.raises(ValueError, match=message):
        call(stream)
    assert all(a is b for a, b in zip(before.slots, stream.snapshot().slots, strict=True))


def test_what_no_stream_can_be_is_refused(worlds):
    for options, message in (
        ({"num_slots": 0}, "at least 1"),
        ({"num_slots": 1, "temperature": -1.0}, "0 or more"),
        ({"num_slots": 1, "sampling_steps": 3}, "distilled to 4"),
    ):
        with pytest.raises(ValueError, match=message):
            worlds["fast"].stream(**options)
    with pytest.raises(ValueError, match="at least 1 network evaluation"):
        worlds["ar"].stream(1, sampling_steps=0)
    with pytest.raises(RuntimeError, match="never reset"):
        worlds["fast"].stream(1).step(rows(0, 1))
    with pytest.raises(RuntimeError, match="never reset"):
        worlds["fast"].stream(1).set_caption([0], event="x")
    for other in (worlds["fast"].stream(2), worlds["base"].stream(1, sampling_steps=2)):
        with pytest.raises(ValueError, match="same world and size"):
            other.restore(worlds["fast"].stream(1).snapshot())


def test_a_rollout_ends_where_positions_do(worlds):
    stream = started(worlds["fast"], 1)
    stream.step(rows(0, 1))
    slot = stream.snapshot().slots[0]
    history = slot.past.history
    long = replace(history, latents=history.latents.expand(MAX_LATENTS, -1, -1, -1, -1).reshape(1, -1, 12, 8, 8))
    full = replace(slot, past=slot.past._replace(history=long))
    stream.restore(replace(stream.snapshot(), slots=(full,)))
    with pytest.raises(RuntimeError, match="max_episode_steps=256"):
        stream.step(rows(0, 1))


def test_a_stream_on_wan_s_newer_codec_goes_on_from_a_pickled_snapshot(single, lively_experts):
    diffusers = pytest.importorskip("diffusers")
    from world_model.codec.wan import WanCodec

    torch.manual_seed(0)
    sizes = {"base_dim": 4, "decoder_base_dim": 4, "z_dim": 4, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1}
    newer = {"is_residual": True, "in_channels": 12, "out_channels": 12, "patch_size": 2, "scale_factor_spatial": 16}
    statistics = {"latents_mean": [0.0] * 4, "latents_std": [1.0] * 4}
    codec = WanCodec(diffusers.AutoencoderKLWan(**sizes, **newer, **statistics).eval().requires_grad_(False))
    wide = replace(
        single.world,
        codec=replace(single.world.codec, spatial_factor=16),
        video=replace(single.world.video, height=128, width=128),
    )
    large = LargeWorld(replace(single, world=wide), "ar")
    stream = LoadedWorld(large, lively_experts(large), codec, encode).stream(1, sampling_steps=1)
    stream.reset([0], [np.full((1, 128, 128, 3), 60, np.uint8)], [HALL], [0])
    assert stream.step(rows(0, 1)).shape == (1, 16, 128, 128, 3)
    saved = pickle.loads(pickle.dumps(stream.snapshot()))
    frames = stream.step(rows(1, 1))
    stream.restore(saved)
    assert torch.equal(stream.step(rows(1, 1)), frames)
