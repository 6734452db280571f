"""Techniques change how a world computes and not what: each against the plain world, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from world_model.acceleration import Techniques, accelerated, graphs, network
from world_model.acceleration.graphs import GraphedCalls
from world_model.acceleration.quantised import Float8Linear, Int8Linear
from world_model.checkpoint import load_world

EXACT = Techniques(fused_projections=True, cached_text=True)


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Root mean square of the difference over that of what is wanted."""
    return float((found - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())


@pytest.fixture
def eager(monkeypatch):
    """Blocks are traced as for compilation, and run without a compiler."""
    monkeypatch.setattr(network, "BACKEND", "eager")


@pytest.mark.parametrize(
    ("techniques", "most"),
    [
        (Techniques(), 0.0),
        (Techniques(fused_projections=True), 1e-5),
        (Techniques(cached_text=True), 1e-6),
        (EXACT, 1e-5),
        (Techniques(bfloat16=True), 0.03),
        (Techniques(int8=True), 0.03),
        (replace(EXACT, bfloat16=True, int8=True), 0.06),
    ],
)
@pytest.mark.parametrize("name", ["tiny_world", "chunked_world"])
def test_an_accelerated_world_makes_the_same_chunks(name, techniques, most, request, begin, roll):
    world = request.getfixturevalue(name)
    before = {key: value.clone() for key, value in world.state_dict().items()}
    wanted, found = (roll(begin(each)) for each in (world, accelerated(world, techniques)))
    assert distance(found, wanted) <= most
    assert all(torch.equal(value, before[key]) for key, value in world.state_dict().items())
    assert {value.dtype for value in world.state_dict().values()} == {value.dtype for value in before.values()}


def test_compiled_blocks_make_the_same_chunks(tiny_world, begin, roll, eager):
    wanted, found = (roll(begin(w)) for w in (tiny_world, accelerated(tiny_world, replace(EXACT, compiled=True))))
    assert distance(found, wanted) < 1e-5


def test_a_cached_text_is_read_anew_when_a_slot_s_caption_changes(tiny_world, begin, roll):
    streams = [begin(world) for world in (tiny_world, accelerated(tiny_world, Techniques(cached_text=True)))]
    for change in ({"event": "it rains"}, {"scene": "a yard"}):
        for stream in streams:
            stream.set_caption([1], **change)
        plain, cached = (roll(stream, 1) for stream in streams)
        torch.testing.assert_close(cached, plain, atol=1e-6, rtol=1e-6)
    unchanged, other = roll(begin(tiny_world), 2)[-1, 1], streams[1].latents[1]
    assert distance(other, unchanged) > 1e-3  # captions matter to this world


def test_a_caption_is_read_once_for_many_steps(tiny_world, begin, roll):
    world = accelerated(tiny_world, Techniques(cached_text=True))
    read = []
    world.transformer.text_embedding.embedding.register_forward_hook(lambda *_: read.append(1))
    roll(begin(world), 4)
    assert len(read) == 1  # its slots begin in a group that is as large as their batch


def test_weights_are_shared_as_long_as_their_precision_stays(tiny_world):
    plain = tiny_world.transformer.blocks[0].ffn[0].weight
    assert accelerated(tiny_world, Techniques()).transformer.blocks[0].ffn[0].weight.data_ptr() == plain.data_ptr()


@pytest.mark.parametrize(("kind", "most"), [(Int8Linear.of, 0.01), (Float8Linear, 0.06)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [64, 24])  # the kernel for CPUs would crash on the second
def test_quantised_layers_stay_near_the_layer(kind, most, dtype, width):
    if kind is Float8Linear and width % 16:
        pytest.skip("float8 products take widths that divide by 16")
    torch.manual_seed(0)
    layer = nn.Linear(width, 48).requires_grad_(False)
    layer.weight[3] = 0.0
    x = torch.randn(2, 5, width)
    found = kind(layer.to(dtype))(x.to(dtype))
    assert found.dtype == dtype and found.shape == (2, 5, 48)
    assert distance(found.float(), layer.float()(x)) < most


def test_quantised_weights_take_a_byte_each(tiny_world):
    block = accelerated(tiny_world, Techniques(int8=True)).transformer.blocks[0]
    layers = [module for module in block.modules() if isinstance(module, Int8Linear)]
    assert len(layers) == 11 and all(layer.codes.dtype == torch.int8 for layer in layers)
    assert [name for name, module in block.named_modules() if isinstance(module, nn.Linear)] == ["action.hidden"]


def test_a_graph_is_recorded_once_for_each_shape_and_reads_new_inputs(tiny_world, begin, roll, monkeypatch):
    recorded = []

    def played(run):
        recorded.append(run)
        return run

    monkeypatch.setattr(graphs, "record", played)
    world = accelerated(tiny_world, EXACT)
    world.transformer.forward = GraphedCalls(world.transformer.forward)
    wanted, found = (roll(begin(each), 6) for each in (tiny_world, world))
    assert distance(found, wanted) < 1e-5
    count = len(recorded)
    roll(begin(world), 6)
    assert 0 < len(recorded) == count < 8


@pytest.mark.parametrize(("name", "need"), [("graphed", "needs a GPU"), ("float8", "compute capability 8.9")])
def test_what_a_cpu_has_not_is_said(tiny_world, name, need):
    techniques = Techniques(**{name: True})
    assert need in techniques.missing(torch.device("cpu"))
    with pytest.raises(ValueError, match=f"{name} {techniques.missing(torch.device('cpu'))}; leave out"):
        accelerated(tiny_world, techniques)


def test_a_missing_compiler_is_said(tiny_world, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("CXX", "g++-99")
    with pytest.raises(ValueError, match=r"compiled needs a C\+\+ compiler \(g\+\+-99 is not installed\)"):
        accelerated(tiny_world, Techniques(compiled=True))


def test_two_precisions_of_the_same_weights_are_refused():
    with pytest.raises(ValueError, match="choose one"):
        Techniques(int8=True, float8=True)


def test_techniques_together_run_the_bundled_world(begin):
    techniques = replace(EXACT, bfloat16=True, int8=True)
    stream = begin(accelerated(load_world("doom"), techniques), 1)
    rows = torch.zeros(1, stream.latents_per_chunk, 6)
    assert stream.step(rows).shape == (1, stream.latents_per_chunk * stream.frames_per_latent, 64, 64, 3)
