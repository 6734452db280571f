"""Techniques change how a large world computes and not what: each against the plain world, over chunks with memory."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from world_model.acceleration import Techniques, accelerated, graphs, network
from world_model.acceleration.quantised import Int8Linear
from world_model.controls import StructuredCaption
from world_model.large import acceleration
from world_model.large.acceleration import RoundedContext
from world_model.large.folder import LargeWorld
from world_model.large.int8 import assign_int8
from world_model.large.parallel import Share
from world_model.large.swapping import SwappedExperts
from world_model.large.world import LoadedWorld
from world_model.transformer import KeyValue

EXACT = Techniques(fused_projections=True, cached_text=True)
VARIANTS = ("fast", "ar", "bi", "base")


def encode(text):
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(sum(text.encode())))


@pytest.fixture(scope="module")
def worlds(toy, single, blocks, lively_experts):
    found = {}
    for variant in VARIANTS:
        large = LargeWorld(single if variant == "base" else toy, variant)
        found[variant] = LoadedWorld(large, lively_experts(large), blocks, encode)
    return found


def begin(world, slots=2):
    stream = world.stream(slots, sampling_steps=None if world.large.few_step else 3)
    pictures = np.random.default_rng(0).integers(0, 256, (slots, 1, 64, 64, 3), dtype=np.uint8)
    captions = [StructuredCaption(scene) for scene in ("a hall", "a street")[:slots]]
    stream.reset(range(slots), pictures, captions, range(slots))
    return stream


def roll(stream, chunks=3):
    """Latents ``[chunks, B, n, C, h, w]``; the last chunk of slot 0 has another caption."""
    generator, made = torch.Generator().manual_seed(4), []
    for chunk in range(chunks):
        if chunk == chunks - 1:
            stream.set_caption([0], event="it rains")
        stream.step(8 * torch.randn(stream.num_slots, stream.latents_per_chunk, 6, generator=generator))
        made.append(stream.latents)
    return torch.stack(made)


def distance(found, wanted):
    """Relative L2."""
    return float((found - wanted).norm() / wanted.norm())


def weights(world):
    return {(name, key): value for name, expert in world.experts.items() for key, value in expert.state_dict().items()}


@pytest.mark.parametrize(
    ("techniques", "least", "most"),
    [
        (Techniques(), 0, 0),
        (Techniques(fused_projections=True), 0, 1e-5),
        (Techniques(cached_text=True), 0, 1e-5),
        (EXACT, 0, 1e-5),
        (Techniques(bfloat16=True), 1e-4, 0.05),
        (Techniques(int8=True), 1e-4, 0.05),
        (replace(EXACT, bfloat16=True, int8=True), 1e-4, 0.08),
    ],
    ids=str,
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_accelerated_world_makes_the_same_chunks(worlds, variant, techniques, least, most):
    world = worlds[variant]
    before = {key: value.clone() for key, value in weights(world).items()}
    faster = accelerated(world, techniques)
    error = distance(roll(begin(faster)), roll(begin(world)))
    assert least <= error <= most
    assert all(torch.equal(value, before[key]) for key, value in weights(world).items())
    assert {value.dtype for value in weights(world).values()} == {torch.float32}


def test_every_technique_is_put_to_use(worlds):
    world = accelerated(worlds["fast"], replace(EXACT, bfloat16=True, int8=True))
    for expert in world.experts.values():
        block = expert.transformer.blocks[0].block
        layers = [module for module in block.modules() if isinstance(module, Int8Linear)]
        assert len(layers) == 7  # two of each attention, without the caption's keys and values; three behind them
        assert block.self_attention.qkv.codes.shape == (48, 16)
        assert expert.compressor.output.weight.dtype == block.modulation.dtype == torch.bfloat16


@pytest.mark.parametrize("variant", ["fast", "base"])
def test_compiled_blocks_make_the_same_chunks(worlds, variant, monkeypatch):
    """Traced as for compilation, and run without a compiler; as the memory grows, nothing is traced anew."""
    traced = []

    def backend(graph, inputs):
        traced.append(graph)
        return graph.forward

    monkeypatch.setattr(network, "BACKEND", backend)
    torch.compiler.reset()
    world = accelerated(worlds[variant], replace(EXACT, compiled=True))
    streams = [begin(each, 1) for each in (worlds[variant], world)]
    wanted, found = (roll(stream, 4) for stream in streams)
    assert distance(found, wanted) < 1e-5
    count = len(traced)
    wanted, found = (roll(stream, 3) for stream in streams)
    assert distance(found, wanted) < 1e-5
    assert 0 < count == len(traced)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_graph_serves_a_memory_that_grows(worlds, variant, monkeypatch):
    recorded = []

    def played(run):  # what a graph does, but for the GPU
        recorded.append(run)
        return run

    monkeypatch.setattr(graphs, "record", played)
    monkeypatch.setattr(acceleration, "STEP", 128)
    monkeypatch.setattr(Techniques, "missing", lambda self, device: None)
    world = accelerated(worlds[variant], replace(EXACT, graphed=True))
    assert distance(roll(begin(world, 1), 6), roll(begin(worlds[variant], 1), 6)) < 1e-5
    if not world.stream(1)._rollout.bidirectional:
        assert len(recorded) <= 2 * 5  # without a past, with one, its first memory, its next, and those after the first
    for expert in world.experts.values():
        assert 0 < len(expert.transformer.forward.forward.graphs) <= acceleration.GRAPHS


def test_a_rounded_context_is_filled_like_any_other(worlds):
    expert = worlds["ar"].experts["low"]
    seen = []
    real = expert.transformer.forward

    def forward(*given):
        seen.append(given[4][0].key.shape[2])
        return real(*given)

    x, rows, text = torch.randn(1, 4, 12, 8, 8), torch.randn(1, 4, 6), torch.randn(1, 3, 8)
    tokens, group = expert.transformer.embed_latents(x), torch.arange(4).repeat_interleave(16)
    given = expert.transformer.steer(group, torch.zeros(1, 4), rows, text)
    positions = torch.rand(64, 3)
    contexts = []
    for run in (real, RoundedContext(forward, 100)):
        noise = torch.Generator().manual_seed(1)
        contexts.append([KeyValue(*torch.randn(2, 1, 2, 70, 8, generator=noise)) for _ in expert.transformer.blocks])
        with torch.no_grad():
            run(tokens, given, positions, None, contexts[-1])
    assert seen == [100]
    for plain, rounded in zip(*contexts, strict=True):
        torch.testing.assert_close(tuple(rounded), tuple(plain))


def test_a_caption_is_read_once_for_a_slot_s_chunk_and_for_all_chunks_of_one_slot(worlds):
    for slots, most in ((1, 2), (2, 7)):  # one slot: its caption and the new one; two: they take turns over 3 chunks
        world = accelerated(worlds["fast"], Techniques(cached_text=True))
        reader = world.experts["high"].transformer.text_embedding
        read = Mock(side_effect=reader.embedding.forward)
        reader.embedding.forward = read
        roll(begin(world, slots))
        assert 0 < read.call_count <= most


def test_weights_of_8_bits_are_fused_and_read_once_and_not_rounded_again(toy, blocks, lively_experts):
    large = LargeWorld(toy, "fast")
    experts = lively_experts(large)
    for expert in experts.values():
        for name, value in list(expert.state_dict().items()):
            assign_int8(expert, name, value)
    world = LoadedWorld(large, experts, blocks, encode)
    assert distance(roll(begin(accelerated(world, EXACT))), roll(begin(world))) < 1e-5
    with pytest.raises(ValueError, match="toy was loaded with weights of 8 bits, which int8 would round once more"):
        accelerated(world, Techniques(int8=True))


def test_experts_that_no_technique_can_follow_are_refused(worlds, blocks):
    large, experts = worlds["fast"].large, worlds["fast"].experts
    swapped = LoadedWorld(large, SwappedExperts(experts, "cpu"), blocks, encode)
    with pytest.raises(ValueError, match="experts of toy take turns on cpu.*load it with swap=False"):
        accelerated(swapped, EXACT)
    split = LoadedWorld(large, experts, blocks, encode, share=Share(0, 2))
    with pytest.raises(ValueError, match="experts of toy are split among 2 processes.*load it in one process"):
        accelerated(split, EXACT)


@pytest.mark.parametrize(("name", "need"), [("graphed", "needs a GPU"), ("float8", "compute capability 8.9")])
def test_what_a_cpu_has_not_is_said(worlds, name, need):
    with pytest.raises(ValueError, match=f"{name} needs.*{need.removeprefix('needs ')}; leave out what is not there"):
        accelerated(worlds["fast"], Techniques(**{name: True}))
