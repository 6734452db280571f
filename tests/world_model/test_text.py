"""The caption encoder: what tells captions apart survives, and a caption means the same alone and among others."""

from __future__ import annotations

import torch

from world_model.config import TINY, TrainingConfig
from world_model.controls import StructuredCaption
from world_model.text import ByteEncoder, field_texts, to_bytes
from world_model.training.optimizer import build_optimizers

TEXTS = [f"scene: a room with plain {colour} walls" for colour in ("red", "green", "blue", "grey", "white", "black")]


def encoder() -> ByteEncoder:
    torch.manual_seed(0)
    return ByteEncoder(TINY.text)


def test_captions_that_share_most_words_are_as_far_apart_as_any():
    captions = encoder().train()
    tokens = captions(to_bytes(TEXTS, TINY.text.max_bytes))
    assert torch.allclose(tokens.std(0, correction=0).mean(), torch.tensor(1.0), atol=0.02)
    assert tokens.mean(0).abs().max() < 1e-4


def test_a_caption_means_the_same_alone_and_among_others():
    captions = encoder().train()
    for _ in range(150):
        captions(to_bytes(TEXTS, TINY.text.max_bytes))
    captions.eval()
    together = captions.encode(TEXTS)
    for text, tokens in zip(TEXTS, together, strict=True):
        assert torch.allclose(captions.encode([text])[0], tokens, atol=1e-5)
    assert together.std(0).mean() > 0.3  # what training gathered still tells them apart


def test_one_caption_alone_can_be_trained_on():
    assert encoder().train()(to_bytes(TEXTS[:1], TINY.text.max_bytes)).isfinite().all()


def test_every_field_is_named_in_its_text():
    texts = field_texts(StructuredCaption("a hall", "a knight", "rain"))
    assert texts == ["scene: a hall", "character: a knight", "event: rain"]


def test_the_caption_encoder_learns_slowly():
    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.text, self.rest = encoder(), torch.nn.Linear(2, 2)

        def hidden_matrices(self):
            return ()

        def rates(self):
            return [(list(self.text.parameters()), 0.1)]

    (adam,) = build_optimizers(Stage(), TrainingConfig(learning_rate=1e-3))
    fast, slow = adam.param_groups
    assert (fast["base_lr"], slow["base_lr"]) == (1e-3, 1e-4)
    assert len(fast["params"]) == 2 and len(slow["params"]) == len(list(encoder().parameters()))
