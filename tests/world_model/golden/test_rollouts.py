"""Whole rollouts of the published models, chunk by chunk, with the small video's latents as they were recorded."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from world_model.control_scripts import action_rows, chunk_values, parse_schedule
from world_model.large import load_expert
from world_model.large.conditioning import condition_volume, shrunk, small_video, start_picture, video_uint8
from world_model.large.context import remember
from world_model.large.rollout import Guidance, LargeRollout, few_step_chunk, solved_chunk
from world_model.solvers import DPMSolver, UniPC


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


@torch.no_grad()
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
    sink, adjacent = notes["sink_size"], notes["temporal_size"]
    rollout = LargeRollout(
        experts, golden.ours(given["mid.hr_y"]), golden.ours(given["mid.lr_y"]), sink=sink, adjacent=adjacent, **options
    )
    noise, expected = golden.ours(given["in.noise"]), golden.ours(given["out.latents"])
    for chunk, prompt in enumerate(prompts):
        part = slice(chunk * size, (chunk + 1) * size)
        latents = sample(rollout, noise[:, part], rows[:, part], texts[prompt], chunk)
        golden.check(latents, expected[:, part], f"{case} chunk {chunk}")
        if chunk + 1 == len(prompts):
            break
        small = golden.ours(given[f"mid.lr_latents.after_chunk{chunk}"])
        rollout.commit(latents, small, rows[:, part], texts[prompt])
        for name in experts:
            for layer, pair in enumerate(rollout.caches[name].pairs if name in rollout.caches else ()):
                key = given.get(f"mid.kv.after_chunk{chunk}.{name}.k.layer{layer}")
                if key is not None:
                    golden.check(pair.key.transpose(1, 2), key, f"{case} cache {chunk} {name} {layer}")
            tokens = given[f"mid.memory.after_chunk{chunk}.{name}.tokens"]
            memory = remember(experts[name], rollout.history, sink, adjacent)
            golden.check(memory.tokens, tokens, f"{case} memory {chunk} {name}")


def test_golden_few_step_rollout(golden, few_step_experts):
    given = golden.tensors("e1_rollout_pdd")

    def sample(rollout, noise, rows, text, chunk):
        fresh = iter(golden.ours(given[f"in.renoise.{3 * chunk + draw:02}"]) for draw in range(3))
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


@torch.no_grad()
@pytest.mark.parametrize("case", ["e1_rollout_pdd", "e2_rollout_ar", "e3_rollout_bi"])
def test_golden_rollout_from_a_picture_to_a_video(golden, wan_codec, case):
    """Everything but text: the picture to its conditioning, frames to the small video's latents, latents to frames."""
    given, notes = golden.tensors(case), golden.notes(case)
    total, size = notes["total_latents"], notes["chunk_length"]
    picture = start_picture(given["in.image_u8"], notes["height"], notes["width"])
    condition = condition_volume(wan_codec, picture, total)
    small_condition = condition_volume(wan_codec, shrunk(picture), total // 2)
    golden.check(golden.theirs(condition), given["mid.hr_y"], f"{case} conditioning")
    golden.check(golden.theirs(small_condition), given["mid.lr_y"], f"{case} small conditioning")
    video, decoder, encoder = [], None, None
    for chunk, latents in enumerate(golden.ours(given["out.latents"]).split(size, dim=1)):
        frames, decoder = wan_codec.decode(latents, decoder)
        video.append(frames)
        if chunk + 1 < total // size:
            small, encoder = wan_codec.encode(small_video(frames), encoder)
            golden.check(golden.theirs(small), given[f"mid.lr_latents.after_chunk{chunk}"], f"{case} small {chunk}")
    video = torch.cat(video, dim=1)
    assert video.shape[1] == notes["n_frames"]
    golden.check(video[0, -1], given["out.video_last_frame"], f"{case} last frame")
    off = (video_uint8(golden.theirs(video)).int() - given["out.video_u8"].int()).abs()
    assert off.max() <= 1 and off.float().mean() < 1e-3  # a value at the edge of two integers may fall on either side
