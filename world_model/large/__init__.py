"""Worlds of the published size and layout: the WorldPlay2 weights on a Wan2.2 backbone.

The blocks, the action branch, the rotary positions and the attention are those of `world_model.transformer`. What the
published model does otherwise has its own file here: its picture-conditioned input (`transformer`), its history
compressor (`compressor`), positions and cache of its memory (`context`), the heads of its few-step form (`few_step`)
and the names of its tensors (`names`, `weights`). `base_models` starts from Wan's own weights instead.

`folder` has the layout on disk, `world` a loaded world, and `stream` puts it behind the interface that environments
use; `trainable` is the form that the stages of training take, with the layouts of `masks`: one expert, the other one
`carried` along, or both (`pair`). For small cards there are weights of 8 bits (`int8`) and experts that take turns on
the device (`swapping`).

The published weights are not part of this package; their authors offer them under a non-commercial licence
(CC-BY-NC-4.0). Wan's are under Apache-2.0.
"""

from world_model.large.base_models import load_base
from world_model.large.companions import load_light_codec, load_umt5, load_wan_codec
from world_model.large.config import LARGE_PRESETS, WAN21_1_3B, WAN22_5B, WORLDPLAY2_14B, LargeConfig
from world_model.large.expert import Expert
from world_model.large.weights import load_expert

__all__ = [
    "LARGE_PRESETS",
    "WAN21_1_3B",
    "WAN22_5B",
    "WORLDPLAY2_14B",
    "Expert",
    "LargeConfig",
    "load_base",
    "load_expert",
    "load_light_codec",
    "load_umt5",
    "load_wan_codec",
]
