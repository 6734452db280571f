"""The caption encoder of the large worlds. Needs the extra ``large``."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from world_model.large import load_umt5
from world_model.text.umt5 import clean


@torch.no_grad()
def test_golden_umt5_encoder(golden, tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("ftfy")
    given, sizes = golden.tensors("j_t5_encoder"), golden.notes("j_t5_encoder")["config"]
    prefix = "weights."
    weights = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    save_file(weights, tmp_path / "umt5.safetensors")
    encoder = load_umt5(
        [tmp_path / "umt5.safetensors"],
        sizes={
            "vocab_size": sizes["vocab"],
            "d_model": sizes["dim"],
            "d_kv": sizes["dim_attn"] // sizes["num_heads"],
            "d_ff": sizes["dim_ffn"],
            "num_layers": sizes["num_layers"],
            "num_heads": sizes["num_heads"],
            "relative_attention_num_buckets": sizes["num_buckets"],
            "relative_attention_max_distance": sizes["max_dist"],
        },
    )
    (context,) = encoder(given["in.ids"], given["in.mask"])
    golden.check(context, given["out.context"], "context")


def test_captions_are_cleaned():
    pytest.importorskip("ftfy")
    assert clean("  a\n stone &amp;amp; hall  ") == "a stone & hall"
