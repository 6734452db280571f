"""The stages of training by name, in the order of the curriculum."""

from __future__ import annotations

from collections.abc import Sequence

from world_model.training.autoregressive import AutoregressiveStage
from world_model.training.codec import CodecStage, DecoderStage
from world_model.training.few_step import DataFreeFewStepStage, FewStepStage
from world_model.training.frame_query import FrameQueryStage
from world_model.training.full_context import FullContextStage
from world_model.training.history import HistoryStage
from world_model.training.navigation import NavigationStage
from world_model.training.stable_forcing import FullContextForcingStage, StableForcingStage, TruncatedForcingStage

CODEC_STAGES = {stage.name: stage for stage in (CodecStage, DecoderStage)}
NETWORK_STAGES = {
    stage.name: stage
    for stage in (
        NavigationStage,
        FrameQueryStage,
        HistoryStage,
        AutoregressiveStage,
        FewStepStage,
        DataFreeFewStepStage,
        FullContextStage,
    )
}
FORCING_STAGES = {  # these also take a teacher
    stage.name: stage for stage in (StableForcingStage, TruncatedForcingStage, FullContextForcingStage)
}
STAGES = CODEC_STAGES | NETWORK_STAGES | FORCING_STAGES

DISTILLED = (FewStepStage.name, DataFreeFewStepStage.name, *FORCING_STAGES)
CAUSAL = (AutoregressiveStage.name, FullContextStage.name)  # that walk chunk by chunk with many evaluations
STARTS = dict.fromkeys(DISTILLED, (*CAUSAL, *DISTILLED))  # whose runs these stages start from; others from any
TEACHERS = (HistoryStage.name,)  # the stages whose runs can score rollouts
LARGE_STAGES = {  # the stages that train large worlds, too, and the variant of `large.folder` that comes of them
    NavigationStage.name: "bi",
    FrameQueryStage.name: "bi",
    HistoryStage.name: "bi",
    AutoregressiveStage.name: "ar",
    FewStepStage.name: "fast",
    DataFreeFewStepStage.name: "fast",
    StableForcingStage.name: "fast",
    TruncatedForcingStage.name: "fast",
}
ALL_EXPERTS = (StableForcingStage.name, TruncatedForcingStage.name)  # that train all of them at once, others one
ONE_EXPERT = (DataFreeFewStepStage.name,)  # that walk through all noise levels with the network that they train


def check_expert(stage: str, expert: str | None, experts: Sequence[str]) -> None:
    """Raise ValueError when a stage cannot train that expert (None: no choice) of a world that has these ``experts``,
    as none but a large world has."""
    several = len(experts) > 1
    choices = " or ".join(experts)
    if not several and expert is not None:
        raise ValueError(f"--expert {expert} is for large worlds of two experts; leave it out")
    if several and stage in ONE_EXPERT:
        raise ValueError(
            f"the stage {stage} walks down from pure noise with the network that it trains, and this world shares its "
            f"noise levels between {len(experts)} experts; use few_step"
        )
    if several and stage in ALL_EXPERTS and expert is not None:
        raise ValueError(f"the stage {stage} trains both experts at once; leave out --expert {expert}")
    if several and stage not in ALL_EXPERTS and expert not in experts:
        raise ValueError(f"the stage {stage} trains one expert of this world at a time; give --expert {choices}")


def check_large_stage(stage: str, name: str) -> None:
    """Raise ValueError when ``stage`` does not train large worlds, such as ``name``."""
    if stage not in LARGE_STAGES:
        raise ValueError(
            f"the stage {stage} does not train large worlds such as {name}; those that do are {', '.join(LARGE_STAGES)}"
        )
