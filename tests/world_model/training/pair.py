"""Runs `wp2 train doom` several times in this process, which a launcher may have started as one of two.

The argument is a JSON list of command lines. Nothing is calculated in bf16, which rounds the sum over a batch and the
sum of its halves differently. A line is printed for every stage whose networks are split, with their number.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys

import torch
from accelerate import Accelerator

from world_model.training import cli, loop, processes, sharding
from world_model.training.collapse import CollapseWatch


def exact(**settings: object) -> Accelerator:
    return Accelerator(**(settings | {"mixed_precision": "no"}))


def told(*given: object) -> int:
    count = split(*given)
    if processes.is_first():
        print(f"split: {count}")
    return count


split, sharding.shard_networks = sharding.shard_networks, told


def main() -> None:
    torch.set_num_threads(1)
    loop.Accelerator = exact
    torch.Tensor.bfloat16 = torch.Tensor.double  # what Muon makes of a gradient before it orthogonalises it
    CollapseWatch.BRIGHTNESS = CollapseWatch.CONTRAST = CollapseWatch.MOTION = math.inf  # of a random world: anything
    CollapseWatch.RESPONSE = 0.0
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    for words in json.loads(sys.argv[1]):
        cli.main(parser.parse_args(words))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do, and threads of the loggers end slowly
