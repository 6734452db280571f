"""Whole rollouts of the published models, chunk by chunk, with the small video's latents as they were recorded."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from world_model.control_scripts import action_rows, chunk_values, parse_schedule
from world_model.large import load_expert
from world_model.large.rollout import Guidance, LargeRollout, few_step_chunk, solved_chunk
from world_model.solvers import DPMSolver, UniPC


def ours(latents: torch.Tensor) -> torch.Tensor:
    """``[C, T, h, w]`` of the golden files to ``[1, T, C, h, w]``."""
    return latents.transpose(0, 1)[None]


@pytest.fixture(scope="module")
def few_step_experts(golden, tmp_path_factory):
    """The experts with interval heads in place of the plain one, as the few-step checkpoints have them."""
    experts = {}
    for name in ("high", "low"):
        tensors = load_file(golden.file(f"weights_expert_{name}.safetensors"))
        bank = load_file(golden.file(f"weights_pdd_bank_{name}.safetensors"))
        kept = {key: value for key, value in tensors.items() if not key.startswith("head.head.")}
        file = tmp_path_factory.mktemp(name) / "expert.safetensors"
        save_file(kept | bank, file)
        experts[name] = load_expert([file], golden.config(), few_step=name, dtype=torch.float32)
    return experts


def run(golden, case, experts, sample, **options):
    """Roll a golden case out with its recorded inputs, checking latents and memory after every chunk."""
    given, notes = golden.tensors(case), golden.notes(case)
    size, total = notes["chunk_length"], notes["total_latents"]
    view = int(notes["perspective"] == "fps")
    rows = torch.from_numpy(action_rows(notes["action"], view, notes["yaw_deg"], notes["pitch_deg"]))[None]
    assert torch.equal(rows[0], given["in.actions"])
    prompts = chunk_values(parse_schedule(notes["prompt_event"], total, size), size)
    assert prompts == notes["chunk_prompts"]
    texts = {"prompt1": given["in.text_a"][None], "prompt2": given["in.text_b"][None]}
    rollout = LargeRollout(experts, ours(given["mid.hr_y"]), ours(given["mid.lr_y"]), **options)
    noise, expected = ours(given["in.noise"]), ours(given["out.latents"])
    for chunk, prompt in enumerate(prompts):
        part = slice(chunk * size, (chunk + 1) * size)
        latents = sample(rollout, noise[:, part], rows[:, part], texts[prompt], chunk)
        golden.check(latents, expected[:, part], f"{case} chunk {chunk}")
        if chunk + 1 == len(prompts):
            break
        small = ours(given[f"mid.lr_latents.after_chunk{chunk}"])
        rollout.commit(latents, small, rows[:, part], texts[prompt])
        for name in experts:
            for layer, pair in enumerate(rollout.caches[name].pairs if name in rollout.caches else ()):
                key = given.get(f"mid.kv.after_chunk{chunk}.{name}.k.layer{layer}")
                if key is not None:
                    golden.check(pair.key.transpose(1, 2), key, f"{case} cache {chunk} {name} {layer}")
            if rollout.bidirectional:
                tokens = given[f"mid.memory.after_chunk{chunk}.{name}.tokens"]
                golden.check(rollout.memories[name].tokens[:1], tokens, f"{case} memory {chunk} {name}")


def test_golden_few_step_rollout(golden, few_step_experts):
    given = golden.tensors("e1_rollout_pdd")

    def sample(rollout, noise, rows, text, chunk):
        fresh = iter(ours(given[f"in.renoise.{3 * chunk + draw:02}"]) for draw in range(3))
        return few_step_chunk(rollout, noise, rows, text, lambda: next(fresh))

    run(golden, "e1_rollout_pdd", few_step_experts, sample)


@pytest.mark.parametrize("case", ["e2_rollout_ar", "e3_rollout_bi"])
def test_golden_many_step_rollout(golden, case):
    given, notes = golden.tensors(case), golden.notes(case)
    solvers = {"unipc": UniPC, "dpm": DPMSolver}
    scales = dict.fromkeys(("high", "low"), notes["guide_scale"])

    def sample(rollout, noise, rows, text, chunk):
        solver = solvers[notes["solver"]](notes["steps"], notes["shift"])
        return solved_chunk(rollout, noise, rows, text, solver)

    experts = {name: golden.expert(name) for name in ("high", "low")}
    guidance = Guidance(given["in.text_negative"][None], scales)
    run(golden, case, experts, sample, guidance=guidance, bidirectional=notes["mode"] == "bi")
