"""Where the golden files are, and how they are compared.

They hold the inputs, intermediate results and outputs of the published model at small random widths. They are not part
of the repository: the folder is named by ``WP2_GOLDEN``, else ``../shared/golden``; without it these tests are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from world_model.config import CodecConfig, MemoryConfig, TextConfig, TransformerConfig, VideoConfig, WorldConfig
from world_model.large import Expert, LargeConfig, load_expert, load_wan_codec

FOLDER = Path(os.environ.get("WP2_GOLDEN") or Path(__file__).parents[4] / "shared" / "golden")
TOLERANCE = 1e-5


class Golden:
    """The golden files by case name."""

    folder = FOLDER

    def tensors(self, case: str) -> dict[str, Tensor]:
        """The tensors of a case."""
        return load_file(self.file(f"{case}.safetensors"))

    def notes(self, case: str) -> dict:
        """What is noted beside a case."""
        return json.loads(self.file(f"{case}.json").read_text())

    def file(self, name: str) -> Path:
        """The path of a file; skips the test when it is not here."""
        if not (self.folder / name).is_file():
            pytest.skip(f"{self.folder / name} is not here (WP2_GOLDEN)")
        return self.folder / name

    @cache  # noqa: B019 - one object lives as long as the tests
    def config(self) -> LargeConfig:
        """The configuration of the small published model."""
        sizes = self.notes("b_block")["model_config"]
        return LargeConfig(
            WorldConfig(
                name="golden",
                chunk_latents=4,
                video=VideoConfig(height=64, width=128),
                codec=CodecConfig(latent_channels=sizes["out_dim"], temporal_factor=4),
                text=TextConfig(width=sizes["text_dim"]),
                transformer=TransformerConfig(
                    width=sizes["dim"],
                    depth=sizes["num_layers"],
                    heads=sizes["num_heads"],
                    ffn_width=sizes["ffn_dim"],
                    patch=sizes["patch_size"][1],
                    frequency_width=sizes["freq_dim"],
                    action_widths=(256, 1024),
                    camera_scale=1.0,
                ),
                memory=MemoryConfig(adjacent_latents=1, spatial_stride=4),
            ),
            text_tokens=sizes["text_len"],
            condition_channels=sizes["in_dim"] - sizes["out_dim"],
            fine_widths=tuple(sizes["comp_dims"]),
        )

    @cache  # noqa: B019
    def expert(self, name: str) -> Expert:
        """An expert of the small published model, "high" or "low", in float32."""
        return load_expert([self.file(f"weights_expert_{name}.safetensors")], self.config(), dtype=torch.float32)

    @staticmethod
    def drawn(name: str, shape: tuple[int, ...], seed: int, gain: float) -> Tensor:
        """A parameter of the full-width cases, which are not stored but follow from their names (splitmix64)."""
        base = np.frombuffer(hashlib.sha256(f"{seed}|{name}".encode()).digest()[:8], "<u8")[0]
        count = int(np.prod(shape))
        with np.errstate(over="ignore"):
            z = base + np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
        u = 2 * ((z >> np.uint64(40)) / 2**24 - 0.5)
        if len(shape) == 1:
            u = 0.1 * u
        elif name.endswith("gamma"):
            u = 1 + 0.25 * u
        else:
            u = gain * u * np.sqrt(3 / (count / shape[0]))
        return torch.from_numpy(u.astype(np.float32)).reshape(shape)

    @staticmethod
    def ours(latents: Tensor) -> Tensor:
        """``[C, T, h, w]`` of the golden files to ``[1, T, C, h, w]``."""
        return latents.transpose(0, 1)[None]

    @staticmethod
    def theirs(latents: Tensor) -> Tensor:
        """The inverse of `ours`."""
        return latents[0].transpose(0, 1)

    def check(self, got: Tensor, expected: Tensor, what: str = "") -> None:
        """Assert that two tensors agree to the tolerance in relative L2."""
        assert got.shape == expected.shape, f"{what}: {tuple(got.shape)}, not {tuple(expected.shape)}"
        distance = (got.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-12)
        assert distance < TOLERANCE, f"{what}: {distance:.2e}"
        if os.environ.get("WP2_GOLDEN_REPORT"):
            print(f"{what}: {distance:.1e}")


@pytest.fixture(scope="session")
def golden() -> Golden:
    return Golden()


@pytest.fixture(scope="session")
def wan_codec(golden: Golden):
    """The Wan autoencoder at small random widths; skips the test without the extra ``large``."""
    pytest.importorskip("diffusers")
    notes = golden.notes("h_wan_vae")
    sizes = {name: notes[name] for name in ("dim_mult", "num_res_blocks", "temperal_downsample")}
    return load_wan_codec([golden.file("weights_wan_vae.safetensors")], {"base_dim": notes["dim"], **sizes})
