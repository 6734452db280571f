"""Codecs and caption encoders are never read from pickles, which can run any code."""

from __future__ import annotations

import pytest
import torch

from world_model.large.companions import open_codec, open_text
from world_model.large.tensor_files import check_no_pickle

CPU = torch.device("cpu")


def test_a_codec_in_a_pickle_is_refused(tmp_path):
    torch.save({}, tmp_path / "diffusion_pytorch_model.bin")
    with pytest.raises(ValueError, match=r"diffusion_pytorch_model\.bin is a pickle, which can run any code"):
        open_codec(tmp_path, CPU)


def test_a_caption_encoder_in_a_pickle_is_refused(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda place: None)
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is a pickle"):
        open_text(tmp_path, tmp_path, CPU)


def test_a_pickle_beside_safetensors_is_left_unread(tmp_path):
    for name in ("model.bin", "model.safetensors"):
        (tmp_path / name).touch()
    check_no_pickle(tmp_path)
