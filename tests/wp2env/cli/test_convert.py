"""``wp2 convert`` from the command line: what it writes, and one sentence for what it cannot."""

from __future__ import annotations

import torch
from safetensors.torch import save_file

from world_model.config import to_json
from world_model.large import Expert
from world_model.large.folder import load_large_world
from world_model.large.names import published_name, published_shape


def test_an_expert_arrives_in_our_layout_and_mistakes_get_one_sentence(wp2, large, tmp_path):
    torch.manual_seed(0)
    tensors = {}
    for ours, value in Expert(large).state_dict().items():
        name = published_name(ours)
        tensors[name] = torch.randn(published_shape(name, tuple(value.shape), 2))
    save_file(tensors, tmp_path / "low.safetensors")
    (tmp_path / "toy.json").write_text(to_json(large))
    words = ["convert", tmp_path / "low.safetensors", tmp_path / "ours", "--config", tmp_path / "toy.json"]

    assert "with --expert" in wp2(*words, "--variant", "ar").error
    assert "head.block_bias" in wp2(*words, "--variant", "fast", "--expert", "low").error
    answer = wp2(*words, "--variant", "ar", "--expert", "low", "--dtype", "fp32")
    assert answer.code == 0 and "wrote the low-noise expert" in answer.out
    loaded = load_large_world(tmp_path / "ours", ["low"], torch.float32)["low"]
    assert torch.equal(loaded.transformer.head_modulation, tensors["head.modulation"][0])
    assert "already" in wp2(*words, "--variant", "ar", "--expert", "low").error
    assert "does not exist" in wp2("convert", tmp_path / "none", tmp_path / "b", "--variant", "ar").error
    (tmp_path / "toy.json").write_text('{"magic": 1}')
    assert "no setting 'magic'" in wp2(*words, "--variant", "ar").error
    (tmp_path / "toy.json").unlink()
    assert "toy.json: No such file" in wp2(*words, "--variant", "ar").error
