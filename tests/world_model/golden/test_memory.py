"""The published forward pass: without a past, with memory beside the chunk, and with memory in a cache."""

from __future__ import annotations

import pytest
import torch

from world_model.control_scripts import action_rows
from world_model.large.context import History, extend_cache, remember, steer_memory
from world_model.large.denoise import evaluate
from world_model.transformer.rotary import rotary_table


def history_of(golden, given: dict[str, torch.Tensor], count: int) -> History:
    latents, small = given["in.hr_latents"][:, :count], given["in.lr_latents"][:, : count // 2]
    return History(
        golden.ours(torch.cat([latents, given["in.hr_y"][:, :count]])),
        golden.ours(torch.cat([small, given["in.lr_y"][:, : count // 2]])),
        given["in.actions"][None, :count],
    )


def check_memory(golden, expert, memory, given, prefix):
    table = torch.stack([given[f"{prefix}.rope.cos"], given[f"{prefix}.rope.sin"]])
    golden.check(memory.tokens, given[f"{prefix}.tokens"], f"{prefix} tokens")
    golden.check(rotary_table(memory.positions, 16), table, f"{prefix} rotary table")
    steering = steer_memory(expert, memory, given.get("in.text_a", torch.zeros(1, 24))[None])
    golden.check(steering.action[:, memory.group], given[f"{prefix}.vec_action"], f"{prefix} actions")
    if f"{prefix}.e_row" in given:
        golden.check(steering.time[:, 0], given[f"{prefix}.e_row"], f"{prefix} time")
        golden.check(steering.modulation[:, 0], given[f"{prefix}.e0_row"], f"{prefix} modulation")


@torch.no_grad()
@pytest.mark.parametrize(
    ("case", "count", "sink"), [("n4", 4, 1), ("n8", 8, 1), ("n12", 12, 1), ("n8_nosink_tmp1", 8, 0)]
)
def test_golden_memory_tokens(golden, case, count, sink):
    given, notes, expert = golden.tensors("d_compressor"), golden.notes("d_compressor"), golden.expert("high")
    memory = remember(expert, history_of(golden, given, count), sink, 1)
    check_memory(golden, expert, memory, given, f"out.{case}.memory")
    counts = notes["counts"][case]
    assert len(memory.group) == sum(counts[f"{kind}_token_count"] for kind in ("sink", "cmp", "tmp"))
    script, view = notes["action"], int(notes["perspective"] == "fps")
    assert torch.equal(torch.from_numpy(action_rows(script, view, pitch=1.0)), given["in.actions"])


@torch.no_grad()
def test_golden_forward_with_and_without_memory(golden):
    given, expert = golden.tensors("c_bidit"), golden.expert("high")
    first, count = golden.notes("c_bidit")["n_context_latents"], 4
    memory = remember(expert, history_of(golden, given, first), 1, 1)
    check_memory(golden, expert, memory, given, "mid.memory")
    x = golden.ours(torch.cat([given["in.x"], given["in.hr_y"][:, first:]]))
    rows, text, timestep = given["in.actions"][None, first:], given["in.text_a"][None], float(given["in.t"])
    steering = expert.transformer.steer(torch.zeros(1, dtype=torch.int64), given["in.t"][None], rows[:, :1], text)
    golden.check(steering.caption, given["mid.text_projected"], "text")
    golden.check(steering.time[0], given["mid.time_embedding"], "time")
    golden.check(steering.modulation[0], given["mid.time_projection"], "modulation")
    golden.check(expert.transformer._frequencies(given["in.t"].double() / 1000), given["mid.time_sinusoid"], "sinusoid")
    assert x.shape[1] == count
    for name, start, actions, past in (
        ("no_memory", 0, rows, None),
        ("no_memory_no_action", 0, None, None),
        ("with_memory", first, rows, memory),
    ):
        (velocity,) = evaluate(expert, x, timestep, start, actions, text, memory=past)
        golden.check(golden.theirs(velocity), given[f"out.{name}"], name)


@torch.no_grad()
def test_golden_cache_grows_and_serves_the_next_chunk(golden):
    given, expert = golden.tensors("c_bidit"), golden.expert("high")
    text = given["in.text_a"][None]

    def check_cache(cache, name):
        for layer, pair in enumerate(cache.pairs):
            for kind, value in (("k", pair.key), ("v", pair.value)):
                golden.check(
                    value.transpose(1, 2), given[f"out.ar.{name}.{kind}.layer{layer}"], f"{name} {kind}{layer}"
                )

    first = extend_cache(expert, None, history_of(golden, given, 4), text, 1, 1)
    check_cache(first, "prefill1")
    second = extend_cache(expert, first, history_of(golden, given, 8), text, 1, 1)
    check_cache(second, "prefill2")
    check_cache(extend_cache(expert, None, history_of(golden, given, 8), text, 1, 1), "prefill_oneshot8")
    x = golden.ours(torch.cat([given["in.x"], given["in.hr_y"][:, 8:]]))
    context = second.context(4 * 32)
    (velocity,) = evaluate(expert, x, float(given["in.t"]), 8, given["in.actions"][None, 8:], text, context=context)
    golden.check(golden.theirs(velocity), given["out.ar.denoise"], "denoise")
