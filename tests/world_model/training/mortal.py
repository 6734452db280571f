"""Runs `wp2 train doom` in children that may kill themselves at any of their steps on disk.

A server, so that torch is imported once: for every line of its input, the JSON ``{"words": [...], "folder": run,
"moment": k}``, a forked child runs the command, or without words writes one more checkpoint, and dies by SIGKILL at its
``k``-th moment, or never if there are fewer. A moment is right before a file or folder is opened, made, renamed or
removed, right before a batch is drawn, or in the middle of a file of tensors. The answer is a line ``{"killed": bool,
"moments": n}``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import traceback
from pathlib import Path

import accelerate  # noqa: F401 - children find it imported
import torch
import torch._dynamo  # noqa: F401 - what makes a world on the meta device imports it
import torch.utils.tensorboard  # noqa: F401
from safetensors import torch as tensor_files

from world_model import checkpoint
from world_model.training import checkpointing, cli, latents, loop
from world_model.training.collapse import CollapseWatch

CHANGES = {"open", "os.rename", "os.mkdir"}  # audit events that tell which path they are about
REMOVALS = {"os.remove", "os.rmdir"}  # and those that tell it relative to an open folder


class Moments:
    """Counts the moments of this process and ends it at the given one."""

    def __init__(self, last: int, folder: str) -> None:
        self.count = 0
        self.last = last
        self.folder = folder

    def pass_one(self) -> None:
        self.count += 1
        if self.count >= self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, details: tuple) -> None:
        if event in REMOVALS or (event in CHANGES and self.folder in str(details[0])):
            self.pass_one()

    def save_file(self, tensors: dict, path: os.PathLike) -> None:
        """Write half of the file, then the whole: there is a moment in between."""
        content = tensor_files.save(tensors)
        Path(path).write_bytes(content[: len(content) // 2])
        Path(path).write_bytes(content)

    def step_generator(self, seed: int, step: int) -> torch.Generator:
        self.pass_one()
        return self.draw(seed, step)

    def install(self) -> None:
        for module in (checkpoint, checkpointing, latents):
            module.save_file = self.save_file
        CollapseWatch.BRIGHTNESS = CollapseWatch.CONTRAST = CollapseWatch.MOTION = (
            math.inf
        )  # of a random world: anything
        CollapseWatch.RESPONSE = 0.0
        self.draw, loop.step_generator = loop.step_generator, self.step_generator
        sys.addaudithook(self.audit)


def live(order: dict) -> int:
    """Carry out an order in this process; how many moments it had."""
    moments = Moments(order["moment"], order["folder"])
    moments.install()
    if order["words"]:
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        cli.main(parser.parse_args([*order["words"], "--out", order["folder"]]))
    else:
        save_checkpoint(Path(order["folder"]))
    return moments.count


def save_checkpoint(run: Path) -> None:
    """Write the checkpoint after the newest one of a run, of a single tensor."""
    weights = {"weight": torch.ones(4)}
    progress = checkpointing.Progress(checkpointing.progress_of(run).step + 1)
    checkpointing.save(run, progress, weights, weights, [], "{}")


def serve() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)  # what the command prints is no answer
            try:
                os.write(writer, str(live(order)).encode())
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(writer)
        moments = os.read(reader, 100)
        os.close(reader)
        status = os.waitpid(child, 0)[1]
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not killed and status:
            raise SystemExit(f"the command failed in {line}")
        print(json.dumps({"killed": killed, "moments": int(moments or 0)}), flush=True)


if __name__ == "__main__":
    serve()
