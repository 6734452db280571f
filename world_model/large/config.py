"""Sizes of a world in the published layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from world_model.config import (
    CodecConfig,
    CurriculumConfig,
    FewStepConfig,
    FlowConfig,
    MemoryConfig,
    StableForcingConfig,
    TextConfig,
    TrainingConfig,
    TransformerConfig,
    VideoConfig,
    WorldConfig,
)
from world_model.flow import ALL_LEVELS

MAX_LATENTS = 1024  # positions in time that the published model has
SINGLE = "only"  # the name of an expert that has all noise levels
BOUNDARY = 0.9  # noise levels from here on belong to the high-noise expert


@dataclass(frozen=True)
class LargeConfig:
    """A `WorldConfig` and what only the published layout has."""

    world: WorldConfig
    experts: tuple[str, ...] = ("high", "low")  # networks that share the noise levels; one alone has all of them
    text_tokens: int = 512  # captions are padded to this many tokens, all of which are attended
    condition_channels: int = 20  # of every latent besides its own: 4 of the picture mask and those of the picture
    clean_picture: bool = False  # the start picture is also the first latent, without noise
    fine_widths: tuple[int, ...] = (64, 64, 128, 256, 256, 512, 512)  # the compressor's input, then its six stages
    fine_heads: int = 8

    @property
    def input_channels(self) -> int:
        """Channels of one latent with its conditioning."""
        return self.world.codec.latent_channels + self.condition_channels

    def expert_at(self, level: float) -> str:
        """The expert that serves a noise level."""
        if self.experts == (SINGLE,):
            return SINGLE
        return "high" if level >= BOUNDARY else "low"

    def noise_range(self, expert: str) -> tuple[float, float]:
        """The lowest and the highest noise level that an expert learns; at the boundary both do, where the last
        few-step evaluation of one ends and the first of the other begins."""
        return {"high": (BOUNDARY, 1.0), "low": (0.0, BOUNDARY), SINGLE: ALL_LEVELS}[expert]


# Of weights that know video already: small steps, everywhere alike. Clips of 32 latents for the bidirectional model and
# four chunks of 4 for the chunk-causal one are the paper's; the other numbers have not been tried at this size.
FINE_TUNING = TrainingConfig(
    batch=32,
    frames=32,
    learning_rate=1e-5,
    matrix_learning_rate=1e-5,
    caption_rate=0.0,
    warmup_steps=200,
    decay_fraction=0.1,
    ema_decay=0.999,
    checkpoint_minutes=30.0,
)
WITH_HISTORY = replace(FINE_TUNING, history=240, growth_steps=4000)
LARGE_CURRICULUM = replace(
    CurriculumConfig(),
    navigation=FINE_TUNING,
    frame_query=replace(WITH_HISTORY, history=96),
    history=WITH_HISTORY,
    autoregressive=replace(WITH_HISTORY, frames=16),
    few_step=FewStepConfig(**vars(replace(WITH_HISTORY, frames=16)) | {"blocks": (28, 28, 36, 36), "guidance": 5.0}),
    stable_forcing=StableForcingConfig(
        batch=32,
        frames=32,
        start=4,
        clips=10,
        evaluations=(4,),
        learning_rate=2e-6,
        score_learning_rate=4e-7,
        ratio=5,
        guidance=5.0,
        checkpoint_minutes=30.0,
    ),
)
WORLDPLAY2_14B = LargeConfig(
    WorldConfig(
        name="worldplay2-14b",
        chunk_latents=4,
        video=VideoConfig(height=448, width=832, frame_rate=16.0),
        codec=CodecConfig(latent_channels=16, temporal_factor=4),
        text=TextConfig(width=4096),
        transformer=TransformerConfig(
            width=5120,
            depth=40,
            heads=40,
            ffn_width=13824,
            frequency_width=256,
            action_widths=(256, 1024),
            camera_scale=1.0,
        ),
        memory=MemoryConfig(adjacent_latents=1, spatial_stride=4),
        flow=FlowConfig(shift=7.0, sampling_steps=4, history_noise=0.0),
        curriculum=LARGE_CURRICULUM,
    )
)
# These two start from public video weights that know no conditioning channels, see `base_models`.
WAN21_1_3B = LargeConfig(
    replace(
        WORLDPLAY2_14B.world,
        name="wan2.1-1.3b",
        transformer=replace(WORLDPLAY2_14B.world.transformer, width=1536, depth=30, heads=12, ffn_width=8960),
        flow=FlowConfig(shift=5.0, sampling_steps=40, history_noise=0.0),
    ),
    experts=(SINGLE,),
)
WAN22_5B = LargeConfig(
    replace(
        WAN21_1_3B.world,
        name="wan2.2-5b",
        # The weights were trained on 704x1280, which the small video of the history, 4 x 32 pixels, does not divide.
        video=VideoConfig(height=640, width=1152, frame_rate=24.0),
        codec=CodecConfig(latent_channels=48, spatial_factor=16, temporal_factor=4),
        transformer=replace(WORLDPLAY2_14B.world.transformer, width=3072, depth=30, heads=24, ffn_width=14336),
    ),
    experts=(SINGLE,),
    condition_channels=52,
    clean_picture=True,
)
LARGE_PRESETS = {config.world.name: config for config in (WORLDPLAY2_14B, WAN21_1_3B, WAN22_5B)}
