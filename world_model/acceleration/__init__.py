"""The same world, faster: techniques that can be switched on one by one, after its weights are loaded.

What they change is how products are computed, never which ones: a stream of an accelerated world is used like any
other. It is for inference; train and save the world that it was made of.

`techniques` lists them, `projections`, `caption`, `quantised` and `graphs` have one idea each, `network` puts them into
a velocity network and `apply` into a world; what large worlds need beside it is in `world_model.large.acceleration`.
"""

from world_model.acceleration.apply import accelerated
from world_model.acceleration.techniques import Techniques

__all__ = ["Techniques", "accelerated"]
