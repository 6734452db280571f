"""The stream: equal to the masked forward, exact to restore, independent from slot to slot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from world_model.codec import to_unit
from world_model.controls import StructuredCaption
from world_model.flow import add_noise
from world_model.memory import coarse_view
from world_model.text import field_texts, to_bytes
from world_model.training.autoregressive import AutoregressiveStage

CAPTIONS = [StructuredCaption("a red room", "a marine", "None"), StructuredCaption("a blue hall", "None", "it rains")]


def start_frames(world, count=1, seed=0):
    shape = (count, world.config.video.height, world.config.video.width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def random_actions(world, slots, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, slots, world.config.chunk_latents)
    camera = torch.randn(*shape, 2, generator=generator) * 10
    moves = torch.randint(-1, 2, (*shape, 2), generator=generator)
    flags = torch.randint(0, 2, (*shape, 2), generator=generator)
    return torch.cat([camera, moves, flags], dim=-1).float()


def started(world, slots, seeds=None, **options):
    stream = world.stream(slots, **options)
    starts = [start_frames(world, seed=slot) for slot in range(slots)]
    captions = [CAPTIONS[slot % 2] for slot in range(slots)]
    stream.reset(range(slots), starts, captions, seeds or list(range(slots)))
    return stream


@pytest.mark.parametrize("memory", ["thinned", "whole", "full context"])
@pytest.mark.parametrize("name", ["tiny_world", "chunked_world"])
def test_cached_rollout_equals_the_masked_forward(name, memory, request):
    """One evaluation per chunk from known noise is what one masked pass over the whole clip predicts, also after the
    memory has begun to forget."""
    bounds = {
        "thinned": {"budget_slots": 3},
        "whole": {"budget_slots": 20},
        "full context": {"budget_slots": 0, "adjacent_latents": 30},
    }
    world = request.getfixturevalue(name)
    world = world.with_memory(replace(world.config.memory, **bounds[memory]))
    config, n = world.config, world.config.chunk_latents
    chunks = 13 if n == 1 else 4
    stream = started(world, 2, sampling_steps=1)
    actions = random_actions(world, 2, chunks)
    latents = [world.codec.encode(to_unit(torch.from_numpy(np.stack([start_frames(world, seed=s) for s in range(2)]))))]
    frames = [world.codec.decode(latents[0])[0].expand(-1, config.codec.temporal_factor, -1, -1, -1)]
    noises = [torch.zeros_like(latents[0])]
    decoder = world.codec.decode(latents[0])[1]
    for row in actions:
        states = [generator.get_state() for generator in stream._generators]
        stream.step(row)
        latents.append(stream.latents.clone())
        decoded, decoder = world.codec.decode(latents[-1], decoder)
        frames.append(decoded)
        noise = []
        for state in states:
            generator = torch.Generator()
            generator.set_state(state)
            noise.append(torch.randn(n, *config.latent_shape, generator=generator))
        noises.append(torch.stack(noise))
    clean, noise, pictures = torch.cat(latents, 1), torch.cat(noises, 1), torch.cat(frames, 1)

    r, stride = config.codec.temporal_factor, config.memory.temporal_stride
    coarse = torch.zeros(2, clean.shape[1], *config.latent_shape[:1], *(s // 2 for s in config.latent_shape[1:]))
    for end in range(stride, clean.shape[1], stride):
        coarse[:, end] = coarse_view(pictures[:, (end - stride + 1) * r : (end + 1) * r], config, world.codec)
    rows = torch.cat([torch.zeros(2, 1, 6), actions.transpose(0, 1).flatten(1, 2)], dim=1)
    rows[:, 0, 4] = 1
    codes = torch.stack([to_bytes(field_texts(caption), config.text.max_bytes) for caption in CAPTIONS])
    stage = AutoregressiveStage(world, None, config.curriculum.autoregressive)
    zeros = torch.zeros_like(clean)
    levels = torch.ones(clean.shape[:2])
    predicted = stage.predict(
        {
            "latents": clean, "sink": clean[:, 0], "sink_actions": rows[:, 0], "first_target": torch.tensor(0),
            "noise": noise, "levels": levels, "coarse": coarse, "actions": rows, "codes": codes,
            "active": torch.ones(*clean.shape[:2], 3, dtype=torch.bool), "history_level": torch.zeros(2),
            "history_noise": zeros, "coarse_noise": torch.zeros_like(coarse),
        }
    )  # fmt: skip
    euler = add_noise(clean, noise, levels) - predicted
    torch.testing.assert_close(
        euler[:, 1:], clean[:, 1:], atol=1e-3, rtol=1e-3
    )  # rounding, over four chunks that build on each other


def test_restoring_a_snapshot_reproduces_frames_bit_for_bit(tiny_world):
    stream = started(tiny_world, 3)
    actions = random_actions(tiny_world, 3, 8)
    for row in actions[:3]:
        stream.step(row)
    saved = stream.snapshot()
    first = [stream.step(row) for row in actions[3:]]
    stream.set_caption([0], event="fog rolls in")
    for _ in range(2):
        stream.restore(saved)
        assert stream.captions[0].event == "None"
        again = [stream.step(row) for row in actions[3:]]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_observing_what_was_generated_is_remembering_it(tiny_world):
    """From the same frames a stream that observed them goes on like one that began with them."""
    frames = torch.from_numpy(np.stack([start_frames(tiny_world, 9, seed=s) for s in range(2)]))
    actions = random_actions(tiny_world, 2, 10)
    rows = torch.cat([torch.tensor([[[0.0, 0, 0, 0, 1, 0]]]).expand(2, 1, 6), actions[:8].transpose(0, 1)[:, :, 0]], 1)
    begun, observing = tiny_world.stream(2), tiny_world.stream(2)
    begun.reset([0, 1], list(frames), CAPTIONS, [0, 1], list(rows))
    observing.reset([0, 1], list(frames[:, :1]), CAPTIONS, [0, 1])
    for step in range(8):
        observing.observe(frames[:, step + 1 : step + 2], actions[step])
    torch.testing.assert_close(observing.latents, begun.latents)
    assert torch.equal(observing.steps_taken, begun.steps_taken)
    begun.step(actions[8]), observing.step(actions[8])
    torch.testing.assert_close(observing.latents, begun.latents, atol=1e-4, rtol=1e-3)


def test_a_snapshot_does_not_cross_into_another_memory(tiny_world):
    stream = started(tiny_world, 2)
    other = tiny_world.with_memory(replace(tiny_world.config.memory, budget_slots=0)).stream(2)
    with pytest.raises(ValueError, match="a world with the same memory"):
        other.restore(stream.snapshot())


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"adjacent_latents": 0}, "adjacent_latents is 0; give a whole number of at least 1"),
        ({"max_age": -5}, "max_age is -5"),
        ({"budget_slots": 2.5}, "budget_slots is 2.5"),
        ({"budget_slots": 1}, "budget_slots is 1; thinning keeps the oldest and the newest"),
        ({"temporal_stride": 4}, "temporal_stride is 4 and these weights were made for 2"),
    ],
)
def test_bounds_that_cannot_work_are_refused(tiny_world, bounds, message):
    with pytest.raises(ValueError, match=message):
        tiny_world.with_memory(replace(tiny_world.config.memory, **bounds))


def test_exchanged_memories_change_what_follows_and_nothing_else(tiny_world):
    stream = started(tiny_world, 2)
    actions = random_actions(tiny_world, 2, 9)
    for row in actions[:8]:
        stream.step(row)
    tokens, saved = stream.context_tokens.tolist(), stream.snapshot()
    assert tokens == [tiny_world.config.token_grid[0] ** 2 * 3 + 4 * 4] * 2  # sink, two adjacent; four slots of four
    stream.step(actions[8])
    kept = stream.latents.clone()
    stream.restore(saved)
    stream.exchange_memories([1, 0])
    assert stream.context_tokens.tolist() == tokens
    stream.step(actions[8])
    assert not torch.allclose(stream.latents, kept)
    stream.restore(saved)
    stream.exchange_memories([0, 1])
    stream.step(actions[8])
    assert torch.equal(stream.latents, kept)


def test_a_slot_does_not_depend_on_the_others_at_equal_batch_size(tiny_world):
    actions = random_actions(tiny_world, 3, 8)
    calm, busy = started(tiny_world, 3), started(tiny_world, 3)
    for step, row in enumerate(actions):
        frame = calm.step(row)
        other = row.clone()
        other[1:] = random_actions(tiny_world, 3, 1, seed=step + 50)[0, 1:]
        if step == 3:
            busy.reset([1], [start_frames(tiny_world, seed=9)], [CAPTIONS[1]], [77])
            busy.set_caption([2], scene="somewhere else")
        assert torch.equal(frame[0], busy.step(other)[0])
        assert torch.equal(calm.latents[0], busy.latents[0])


@pytest.mark.parametrize("frames", [None, 1, 5])
def test_a_slot_begins_alike_whoever_begins_with_it(tiny_world, frames):
    def start(seed):
        return None if frames is None else start_frames(tiny_world, frames, seed)

    together, one_by_one = tiny_world.stream(6), tiny_world.stream(6)
    slots = list(range(6))
    begun = together.reset(slots, [start(seed) for seed in slots], [CAPTIONS[seed % 2] for seed in slots], slots)
    for seed in [3, 0, 5, 1, 4, 2]:
        assert torch.equal(one_by_one.reset([seed], [start(seed)], [CAPTIONS[seed % 2]], [seed])[0], begun[seed])
    for row in random_actions(tiny_world, 6, 3):
        assert torch.equal(together.step(row), one_by_one.step(row))
    assert torch.equal(together.latents, one_by_one.latents)


def test_starts_of_other_lengths_begin_at_once(tiny_world):
    lengths = [5, None, 1, 5, 1]
    starts = [None if count is None else start_frames(tiny_world, count, seed) for seed, count in enumerate(lengths)]
    stream, slots = tiny_world.stream(5), list(range(5))
    begun = stream.reset(slots, starts, [CAPTIONS[0]] * 5, slots)
    assert stream.steps_taken.tolist() == [5, 1, 1, 5, 1]
    for slot in slots:
        alone = tiny_world.stream(5)
        assert torch.equal(alone.reset([slot], [starts[slot]], [CAPTIONS[0]], [slot])[0], begun[slot])


def test_a_slot_alone_is_the_slot_in_a_batch_within_1e_5_per_step(tiny_world):
    """Compared step by step from the same state, since a rollout feeds rounding back into itself."""
    batch, alone = started(tiny_world, 3), tiny_world.stream(1)
    alone.reset([0], [start_frames(tiny_world, seed=2)], [CAPTIONS[0]], [2])
    for row in random_actions(tiny_world, 3, 6):
        batch.step(row)
        alone.step(row[2:])
        torch.testing.assert_close(batch.latents[2], alone.latents[0], atol=1e-5, rtol=1e-4)


def test_seeds_change_the_noise_and_nothing_reads_the_global_generator(tiny_world):
    actions = random_actions(tiny_world, 2, 3)
    torch.manual_seed(1)
    first = started(tiny_world, 2, seeds=[3, 4])
    a = [first.step(row) for row in actions][-1]
    torch.manual_seed(2)
    second = started(tiny_world, 2, seeds=[3, 5])
    b = [second.step(row) for row in actions][-1]
    assert torch.equal(a[0], b[0]) and not torch.equal(a[1], b[1])


def test_cost_state_does_not_grow_and_positions_stay_bounded(tiny_world):
    stream = started(tiny_world, 1)
    sizes = set()
    for row in random_actions(tiny_world, 1, 60):
        stream.step(row)
        sizes.add(stream._past.cache.key.shape)
    cache = stream._past.cache
    assert len(sizes) == 1
    times = sorted(cache.slot_time[0].tolist())
    assert times[-1] == 60 and times[0] >= 2 and cache.sink_time[0, 0] == 0
    assert sorted(cache.adjacent_time[0].tolist()) == [59, 60]
    assert torch.isfinite(stream.latents).all()


def test_actions_and_captions_reach_the_frames(tiny_world):
    streams = [started(tiny_world, 1) for _ in range(3)]
    row = torch.zeros(1, 1, 6)
    turned = row.clone()
    turned[..., 1] = 10
    streams[2].set_caption([0], event="night falls")
    still, moved, dark = streams[0].step(row), streams[1].step(turned), streams[2].step(row)
    assert not torch.equal(still, moved) and not torch.equal(still, dark)


def test_a_world_starts_from_text_alone_and_from_several_frames(tiny_world):
    stream = tiny_world.stream(2)
    frames = stream.reset([0, 1], [None, start_frames(tiny_world, 5)], CAPTIONS, [0, 1])
    assert frames.shape == (2, 32, 32, 3) and frames.dtype == torch.uint8
    assert stream.steps_taken.tolist() == [1, 5]
    assert stream.step(random_actions(tiny_world, 2, 1)[0]).shape == (2, 1, 32, 32, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.step(torch.zeros(1, 1, 6)), "take"),
        (lambda s: s.step(torch.full((2, 1, 6), torch.nan)), "finite"),
        (lambda s: s.observe(torch.zeros(2, 1, 8, 8, 3, dtype=torch.uint8), torch.zeros(2, 1, 6)), "uint8"),
        (lambda s: s.exchange_memories([0]), "does not name a slot for each of 2"),
        (lambda s: s.exchange_memories([0, 5]), "slot 5"),
        (lambda s: s.reset([5], [None], [CAPTIONS[0]], [0]), "slot 5"),
        (lambda s: s.reset([0], [np.zeros((1, 8, 8, 3), np.uint8)], [CAPTIONS[0]], [0]), "shape"),
        (lambda s: s.reset([0], [None], [CAPTIONS[0]], [0, 1]), "as many"),
        (lambda s: s.set_caption([9], event="x"), "slot 9"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(tiny_world, call, message):
    stream, twin = started(tiny_world, 2), started(tiny_world, 2)
    with pytest.raises(ValueError, match=message):
        call(stream)
    row = random_actions(tiny_world, 2, 1)[0]
    assert torch.equal(stream.step(row), twin.step(row))


def test_a_stream_that_was_never_reset_says_so(tiny_world):
    with pytest.raises(RuntimeError, match="never reset"):
        tiny_world.stream(1).step(torch.zeros(1, 1, 6))
