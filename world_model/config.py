"""Every size, rate and schedule of the project, in one tree of frozen dataclasses, and the named presets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, get_type_hints


@dataclass(frozen=True)
class VideoConfig:
    """The pictures a world is made of."""

    height: int = 64
    width: int = 64
    frame_rate: float = 35 / 4  # video frames per second; Doom runs at 35 tics a second, one frame is 4 tics


@dataclass(frozen=True)
class CodecConfig:
    """The causal video autoencoder."""

    latent_channels: int = 12
    spatial_factor: int = 8  # pixels per latent pixel, along height and width; the bundled codec has 8
    temporal_factor: int = 1  # video frames per latent frame, 1 or 4
    widths: tuple[int, int, int] = (48, 96, 160)  # channels at 1/2, 1/4 and 1/8 of the resolution
    encoder_blocks: tuple[int, int, int] = (1, 1, 1)
    decoder_blocks: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True)
class TextConfig:
    """The byte-level caption encoder."""

    width: int = 128
    depth: int = 1
    heads: int = 4
    max_bytes: int = 192  # of one caption field
    stride: int = 4  # bytes merged into one token by the first convolution
    tokens_per_field: int = 4  # what one field hands to cross-attention


@dataclass(frozen=True)
class TransformerConfig:
    """The velocity network."""

    width: int = 256
    depth: int = 6
    heads: int = 4
    ffn_width: int = 512
    patch: int = 2  # latent pixels per token, along height and width
    frequency_width: int = 128  # of the sinusoidal noise-level features
    action_widths: tuple[int, int] = (64, 128)  # hidden layers of the camera MLP
    camera_scale: float = 0.1  # multiplies pitch and yaw degrees; 1.0 in the published weights


@dataclass(frozen=True)
class MemoryConfig:
    """The context ``[sink | compressed | adjacent]`` of Eq. 4."""

    sink_latents: int = 1
    adjacent_latents: int = 4
    temporal_stride: int = 2  # l in the paper: latents merged into one compressed slot
    spatial_stride: int = 2  # s in the paper, of the token grid; 4x4 tokens leave no room for the paper's 4
    budget_slots: int = 48  # compressed slots kept; past them the history is thinned. 0: no compressed memory
    max_age: int = 255  # latents; rotary ages beyond it are held there, so that positions stay inside what was trained
    fine_widths: tuple[int, int] = (64, 128)
    fine_heads: int = 4


@dataclass(frozen=True)
class FlowConfig:
    """Noise levels: sigma = 1 is noise, sigma = 0 is data."""

    shift: float = 1.5  # sigma' = shift * sigma / (1 + (shift - 1) * sigma)
    sampling_steps: int = 4
    history_noise: float = 0.25  # training adds up to this level to the history and tells the network
    # Of a world distilled by parallel decoding: how many intervals of a fine noise grid each network evaluation of a
    # chunk covers, the noisiest first. Empty: the world was not distilled.
    blocks: tuple[int, ...] = ()
    fused: bool = False  # one head per block, instead of one per interval


@dataclass(frozen=True)
class TrainingConfig:
    """How one stage of the curriculum is optimised."""

    batch: int = 8  # clips per step
    frames: int = 12  # latent frames per clip that are learned
    history: int = 0  # latent frames before them that are only memory, at most
    growth_steps: int = 0  # over which the longest history grows to that, from nothing (progressive curriculum)
    learning_rate: float = 8e-4  # AdamW, for all that is not a hidden matrix
    matrix_learning_rate: float = 3e-3  # Muon, for the hidden matrices
    caption_rate: float = 0.02  # of the learning rate, for the caption encoder: the rest must learn to read it first
    weight_decay: float = 0.01
    warmup_steps: int = 100
    decay_fraction: float = 0.3  # last part of the budget over which the rates fall to zero
    clip_norm: float = 1.0
    ema_decay: float = 0.998
    checkpoint_minutes: float = 4.0
    seed: int = 0

    @property
    def window(self) -> int:
        """Latent frames of the longest window that the stage draws."""
        return self.history + self.frames


@dataclass(frozen=True)
class FewStepConfig(TrainingConfig):
    """How the autoregressive model is distilled to few evaluations (PDD)."""

    history: int = 240
    learning_rate: float = 2e-4
    matrix_learning_rate: float = 6e-4
    caption_rate: float = 0.0  # the teacher's reading of captions is kept
    blocks: tuple[int, ...] = (8, 8, 8, 8)  # see `FlowConfig.blocks`
    midpoint: bool = False  # the teacher's step over an interval: of second order instead of Euler's
    guidance: float = 1.0  # classifier-free guidance, folded into the teacher; 1 is none


@dataclass(frozen=True)
class StableForcingConfig(TrainingConfig):
    """How the few-step model learns from its own rollouts (Algorithm 1); ``frames`` are the latents of one clip."""

    batch: int = 4
    history: int = 0
    learning_rate: float = 3e-5  # of the student
    score_learning_rate: float = 2e-4  # of the fake score
    caption_rate: float = 0.0
    decay_fraction: float = 0.2
    warmup_steps: int = 20
    ema_decay: float = 0.98
    start: int = 8  # true latents that a rollout begins with
    clips: int = 4  # of one rollout, at most
    evaluations: tuple[int, ...] = (2, 4)  # of a chunk: a rollout draws one of these, if the blocks allow it
    growth_steps: int = 100  # over which a rollout grows from one clip to that
    ratio: int = 2  # steps of the fake score for each one of the student
    normalised: bool = True  # a clip's direction over its distance from the real estimate (DMD); False: Algorithm 1
    guidance: float = 1.0  # classifier-free guidance of the real score; 1 is none
    watch_steps: int = 20  # between two looks at whether rollouts collapse

    @property
    def window(self) -> int:
        return self.start + self.clips * self.frames


@dataclass(frozen=True)
class RewardConfig:
    """Learned reward heads: their sizes, and the tasks and the calibration that training found, one entry per task."""

    tasks: tuple[str, ...]
    latent_shape: tuple[int, int, int]  # of one latent of the world: channels, height, width
    codec: str = ""  # `reward.codec_digest` of the codec whose latents they read
    window: int = 4  # newest latents that are read
    members: int = 3  # of the ensemble
    widths: tuple[int, int, int] = (16, 28, 8)  # of each latent's features, of all latents' together, and of what stays
    groups: int = 4  # of the strided convolution
    hidden: int = 24
    scales: tuple[float, ...] = ()  # a member's logit is multiplied by this, ...
    shifts: tuple[float, ...] = ()  # ... and this is added
    thresholds: tuple[float, ...] = ()  # probability from which on an event is declared to have happened
    amounts: tuple[float, ...] = ()  # mean reward of a step in which it happened

    def __post_init__(self) -> None:
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"the tasks of the reward heads are {list(self.tasks)}; name at least one, each once")
        for name, usual in (("scales", 1.0), ("shifts", 0.0), ("thresholds", 0.5), ("amounts", 1.0)):
            values = getattr(self, name) or (usual,) * len(self.tasks)
            if len(values) != len(self.tasks):
                raise ValueError(
                    f"the reward heads have {len(values)} {name} for {len(self.tasks)} tasks; give one each"
                )
            object.__setattr__(self, name, values)


@dataclass(frozen=True)
class CurriculumConfig:
    """The stages, in the order in which they are trained."""

    codec: TrainingConfig = field(default_factory=lambda: TrainingConfig(batch=10, frames=3, learning_rate=2e-3))
    decoder: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(batch=10, frames=3, learning_rate=1e-3, decay_fraction=0.7)
    )
    navigation: TrainingConfig = field(default_factory=TrainingConfig)
    frame_query: TrainingConfig = field(default_factory=lambda: TrainingConfig(history=96, growth_steps=400))
    history: TrainingConfig = field(default_factory=lambda: TrainingConfig(history=240, growth_steps=800))
    autoregressive: TrainingConfig = field(default_factory=lambda: TrainingConfig(history=240, growth_steps=1200))
    few_step: FewStepConfig = field(default_factory=FewStepConfig)
    stable_forcing: StableForcingConfig = field(default_factory=StableForcingConfig)
    full_context: TrainingConfig = field(default_factory=lambda: TrainingConfig(batch=2, history=84))


CURRICULUM_MINUTES = {  # of training on two CPU cores, for stages that `wp2 train --curriculum` is told nothing about
    "codec": 30.0,
    "navigation": 15.0,
    "frame_query": 15.0,
    "history": 20.0,
    "autoregressive": 60.0,
    "few_step": 20.0,
    "stable_forcing": 45.0,
}


@dataclass(frozen=True)
class WorldConfig:
    """One world: everything needed to build its network and to run it."""

    name: str = "doom"
    chunk_latents: int = 1  # latents generated at once
    video: VideoConfig = field(default_factory=VideoConfig)
    codec: CodecConfig = field(default_factory=CodecConfig)
    text: TextConfig = field(default_factory=TextConfig)
    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    flow: FlowConfig = field(default_factory=FlowConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)

    def __post_init__(self) -> None:
        sizes = {
            "video.height": self.video.height, "video.width": self.video.width, "chunk_latents": self.chunk_latents,
            "codec.spatial_factor": self.codec.spatial_factor, "transformer.patch": self.transformer.patch,
            "transformer.width": self.transformer.width, "transformer.heads": self.transformer.heads,
            "memory.spatial_stride": self.memory.spatial_stride, "memory.temporal_stride": self.memory.temporal_stride,
        }  # fmt: skip
        for name, value in sizes.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of at least 1")
        factor = self.codec.spatial_factor
        patch_pixels = factor * self.transformer.patch
        if self.video.height % patch_pixels or self.video.width % patch_pixels:
            raise ValueError(
                f"the video size {self.video.height}x{self.video.width} is not a multiple of {patch_pixels} "
                f"({factor} for the codec times the patch size); choose another size or patch"
            )
        rows, columns = self.token_grid
        if rows % self.memory.spatial_stride or columns % self.memory.spatial_stride:
            raise ValueError(
                f"the token grid {rows}x{columns} is not a multiple of the memory's spatial stride "
                f"{self.memory.spatial_stride}; choose another stride"
            )
        for name, least in (("adjacent_latents", 1), ("max_age", 1), ("budget_slots", 0)):
            value = getattr(self.memory, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"memory.{name} is {value!r}; give a whole number of at least {least}")
        if self.memory.budget_slots == 1:
            raise ValueError(
                "memory.budget_slots is 1; thinning keeps the oldest and the newest slot, so give 2 or more, or 0 for "
                "a world without compressed memory"
            )
        if any(not isinstance(size, int) or size < 1 for size in self.flow.blocks):
            raise ValueError(f"flow.blocks is {self.flow.blocks!r}; give whole numbers of intervals, at least 1 each")
        if self.flow.sampling_steps < 1:
            raise ValueError(f"flow.sampling_steps is {self.flow.sampling_steps}; a chunk needs at least 1 evaluation")
        if self.flow.blocks and len(self.flow.blocks) % self.flow.sampling_steps:
            raise ValueError(
                f"flow.sampling_steps is {self.flow.sampling_steps}, which does not divide the {len(self.flow.blocks)} "
                "blocks of this distilled world; choose a divisor"
            )
        if self.memory.sink_latents != 1:
            raise ValueError(f"sink_latents is {self.memory.sink_latents}; the start picture, 1, is what is supported")
        if self.chunk_latents > 1 and self.chunk_latents % self.memory.temporal_stride:
            raise ValueError(
                f"a chunk of {self.chunk_latents} latents does not split into slots of "
                f"{self.memory.temporal_stride}; choose 1 or a multiple of the memory's temporal stride"
            )
        if self.transformer.width % self.transformer.heads or (self.transformer.width // self.transformer.heads) % 2:
            raise ValueError(
                f"width {self.transformer.width} does not split into {self.transformer.heads} heads of even size; "
                "choose another number of heads"
            )

    @property
    def chunk_rate(self) -> float:
        """Chunks a second in real time, each of which is one step of an environment."""
        return self.video.frame_rate / (self.chunk_latents * self.codec.temporal_factor)

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one latent frame."""
        factor = self.codec.spatial_factor
        return self.codec.latent_channels, self.video.height // factor, self.video.width // factor

    @property
    def token_grid(self) -> tuple[int, int]:
        """Rows and columns of tokens of one latent frame."""
        patch_pixels = self.codec.spatial_factor * self.transformer.patch
        return self.video.height // patch_pixels, self.video.width // patch_pixels

    @property
    def memory_grid(self) -> tuple[int, int]:
        """Rows and columns of tokens of one compressed slot."""
        rows, columns = self.token_grid
        return rows // self.memory.spatial_stride, columns // self.memory.spatial_stride


TINY = WorldConfig(
    name="tiny",
    video=VideoConfig(height=32, width=32),
    codec=CodecConfig(latent_channels=4, widths=(8, 8, 16), encoder_blocks=(1, 1, 1), decoder_blocks=(1, 1, 1)),
    text=TextConfig(width=16, depth=1, heads=2, max_bytes=64, tokens_per_field=2),
    transformer=TransformerConfig(
        width=32, depth=2, heads=2, ffn_width=64, patch=1, frequency_width=16, action_widths=(8, 16)
    ),
    memory=MemoryConfig(adjacent_latents=2, budget_slots=4, max_age=16, fine_widths=(8, 16), fine_heads=2),
)
DOOM = WorldConfig()
DOOM_GPU = replace(
    DOOM,
    name="doom-gpu",
    codec=replace(DOOM.codec, widths=(64, 128, 256), decoder_blocks=(2, 2, 3)),
    transformer=replace(DOOM.transformer, width=384, depth=12, heads=6, ffn_width=1536),
)
PRESETS = {preset.name: preset for preset in (TINY, DOOM, DOOM_GPU)}


def to_json(config: Any) -> str:
    """A configuration as JSON text; `from_json` is the inverse."""
    return json.dumps(asdict(config), indent=2) + "\n"


def from_json(text: str, kind: type = WorldConfig) -> Any:
    """Build a configuration of type ``kind`` from JSON text.

    Raises:
        ValueError: for a key that the configuration does not have, named in the message.
    """
    return _build(kind, json.loads(text), kind.__name__)


def with_settings(config: WorldConfig, settings: Sequence[str]) -> WorldConfig:
    """The configuration with other numbers for stages of its curriculum, each given as ``STAGE.NAME=JSON``, such as
    ``few_step.midpoint=true`` or ``stable_forcing.evaluations=[1, 2, 4]``.

    Raises:
        ValueError: for a stage, a name or a kind of value that does not exist there.
    """
    for setting in settings:
        path, _, text = setting.partition("=")
        stage, _, name = path.partition(".")
        known = getattr(config.curriculum, stage, None)
        if known is None:
            stages = ", ".join(item.name for item in fields(config.curriculum))
            raise ValueError(f"the setting {setting!r} names no stage; write STAGE.NAME=VALUE with one of {stages}")
        if name not in vars(known):
            raise ValueError(f"{stage} has no setting {name!r}; it knows {', '.join(vars(known))}")
        value = _value(setting, text, vars(known)[name])
        config = replace(config, curriculum=replace(config.curriculum, **{stage: replace(known, **{name: value})}))
    return config


def _value(setting: str, text: str, present: Any) -> Any:
    """The value of a setting that is ``present`` now: of the same type."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    value = tuple(value) if isinstance(value, list) else value
    value = float(value) if type(present) is float and type(value) is int else value
    if type(value) is not type(present):
        kind = {bool: "true or false", int: "a whole number", float: "a number", tuple: "a list such as [1, 2]"}
        raise ValueError(f"the setting {setting!r} does not fit; give {kind[type(present)]}, it is {present!r} now")
    return value


def _build(kind: type, values: dict, where: str) -> Any:
    hints = get_type_hints(kind)
    known = {item.name for item in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{where} has no setting {unknown[0]!r}; it knows {', '.join(sorted(known))}")
    arguments = {}
    for name, value in values.items():
        if is_dataclass(hints[name]):
            value = _build(hints[name], value, f"{where}.{name}")
        elif isinstance(value, list):
            value = tuple(value)
        arguments[name] = value
    return kind(**arguments)
