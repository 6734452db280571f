"""The command ``wp2``, with everything that `wp2env.cli` knows and the commands about agents."""

from __future__ import annotations

from collections.abc import Sequence

from wp2env.cli import main as wp2
from wp2env.cli.main import COMMANDS as WORLD_COMMANDS
from wp2env.cli.main import Command

AGENT_COMMANDS = (
    Command(
        ("story",),
        "train an agent briefly in a generated world, and show what it can do in the true game, before and after",
        """\
  wp2 story --out story --minutes 9
  wp2 story --out longer --steps 100000 --seed 1
  wp2 story --out mine --world runs/mine/world --episodes 200
  The same command again continues a story that was interrupted.""",
        "agents.cli.story",
    ),
    Command(
        ("train-agent",),
        "train an agent, in a generated world or in the true game",
        """\
  wp2 train-agent --starts starts/train.safetensors --steps 100000 --out runs/agent
  wp2 train-agent --starts starts/train.safetensors --steps 50000 --out runs/true --in game --algo a2c --seed 1
  wp2 train-agent --starts starts/train.safetensors --steps 100000 --out runs/agent --eval-starts starts/val.safetensors
  wp2 evaluate runs/agent --in both --starts starts/test.safetensors
  The same command again continues a training that was interrupted, and more --steps a finished one.""",
        "agents.cli.train",
    ),
    Command(
        ("clone",),
        "train an agent to imitate the players of recordings",
        """\
  wp2 clone --data data/train --out runs/clone
  wp2 clone --data data/train --out runs/clone --task "walk to the red ball" --steps 3000 --seed 1
  With --task it learns from the clips that fulfil the task alone, up to the frame that does.""",
        "agents.cli.clone",
    ),
    Command(
        ("evaluate",),
        "play a policy from the same starts in a generated world, in the true game, or in both",
        """\
  wp2 evaluate scripted --in both --starts starts/test.safetensors --episodes 64
  wp2 evaluate runs/agent --in both --starts starts/test.safetensors --json agent.json --video agent.mp4
  wp2 evaluate random --task explore --episodes 3
  wp2 evaluate broken:noisy:0.3 --in game --starts starts/test.safetensors --seed 7
  Policies: random, idle, scripted (looks for the red ball), broken:mirrored, broken:backwards, broken:spin,
  broken:noisy:SHARE, or the path of a trained one.""",
        "agents.cli.evaluate",
    ),
    Command(
        ("record", "world"),
        "record episodes of a policy as a dataset, in a generated world or in the true game",
        """\
  wp2 record world --policy random --episodes 64 --out data/random
  wp2 record world --policy runs/agent --envs 16 --episodes 512 --task "walk to the red ball" --out data/agent
  wp2 record world --policy scripted --episodes 64 --starts starts/train.safetensors --in game --out data/true
  wp2 record world --policy random --episodes 64 --format minari --out data/random-v0
  wp2 record world --policy random --episodes 512 --format lerobot --out data/frames --ray --workers 4
  The same command again continues a recording that was interrupted.""",
        "agents.cli.record",
    ),
)
COMMANDS = (*WORLD_COMMANDS, *AGENT_COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``wp2`` and return its exit code."""
    return wp2(arguments, COMMANDS)


__all__ = ["AGENT_COMMANDS", "COMMANDS", "main"]
