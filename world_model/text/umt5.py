"""The caption encoder of the large worlds: umT5 (transformers' `UMT5EncoderModel`). Needs the extra ``large``."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import UMT5Config, UMT5EncoderModel

MAX_TOKENS = 512
XXL = {"vocab_size": 256384, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64}
RENAMES = (  # pattern of transformers' name, the one in the original encoder file
    (r"shared\.weight|encoder\.embed_tokens\.weight", r"token_embedding.weight"),
    (r"encoder\.final_layer_norm\.weight", r"norm.weight"),
    (r"encoder\.block\.(\d+)\.layer\.0\.layer_norm\.weight", r"blocks.\1.norm1.weight"),
    (r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.([qkvo])\.weight", r"blocks.\1.attn.\2.weight"),
    (
        r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.relative_attention_bias\.weight",
        r"blocks.\1.pos_embedding.embedding.weight",
    ),
    (r"encoder\.block\.(\d+)\.layer\.1\.layer_norm\.weight", r"blocks.\1.norm2.weight"),
    (r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_0\.weight", r"blocks.\1.ffn.gate.0.weight"),
    (r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_1\.weight", r"blocks.\1.ffn.fc1.weight"),
    (r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wo\.weight", r"blocks.\1.ffn.fc2.weight"),
)


class UMT5Encoder(nn.Module):
    """Caption texts to one row per token, ``[length, 4096]`` each; the network pads them with zeros."""

    def __init__(self, model: UMT5EncoderModel, tokenizer: Any = None) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer

    @classmethod
    def from_pretrained(cls, name_or_path: str, **options: Any) -> UMT5Encoder:
        """Model and tokenizer from a folder or hub id in transformers' format."""
        from transformers import AutoTokenizer, UMT5EncoderModel

        model = UMT5EncoderModel.from_pretrained(name_or_path, **options).eval().requires_grad_(False)
        return cls(model, AutoTokenizer.from_pretrained(name_or_path))

    def encode(self, texts: Sequence[str]) -> list[Tensor]:
        """Rows of each text, cleaned and cut at `MAX_TOKENS` tokens."""
        cleaned = [clean(text) for text in texts]
        found = self.tokenizer(
            cleaned, padding="max_length", truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        )
        return self(found.input_ids.to(self.model.device), found.attention_mask.to(self.model.device))

    def forward(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
        """Token ids and mask ``[B, L]`` to the rows where the mask is 1."""
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return [rows[: int(length)] for rows, length in zip(hidden, mask.sum(1), strict=True)]


def clean(text: str) -> str:
    """Repair broken unicode, undo HTML escapes (twice, for what was escaped twice) and collapse white space."""
    import ftfy

    text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return re.sub(r"\s+", " ", text).strip()


def configuration(**sizes: int) -> UMT5Config:
    """The configuration of the encoder in the published files, umT5-XXL unless ``sizes`` say otherwise."""
    from transformers import UMT5Config

    return UMT5Config(**{**XXL, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0, **sizes})


def original_name(name: str) -> str:
    """The name in the original encoder file of a tensor of transformers' model."""
    for pattern, replacement in RENAMES:
        if match := re.fullmatch(pattern, name):
            return match.expand(replacement)
    raise KeyError(name)
