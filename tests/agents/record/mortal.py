"""Records in children that kill themselves: ``mortal.py WORLD MORTAL_OUT UNDISTURBED_OUT``.

Child k dies by SIGKILL right before its k-th change on disk, until one gets through. A process of its own, so that
torch is imported once and nothing runs beside the fork. Prints how many lives it took, and how many episodes were
finished after each: ``{"lives": n, "counts": [...]}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch

from agents.record.parts import PARTS
from agents.record.plan import Plan
from agents.record.recording import record
from wp2env import tasks

CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"}


def die_at(moment: int, folder: str) -> None:
    """Kill this process at its ``moment``-th change of the folder."""
    seen = [0]

    def watch(event: str, details: tuple) -> None:
        writes = event == "open" and isinstance(details[1], str) and set(details[1]) & set("wax")
        if event not in CHANGES and not writes:
            return
        if event in ("os.remove", "os.rmdir") or str(details[0]).startswith(folder):  # those may be told relatively
            seen[0] += 1
            if seen[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def live(plan: Plan, out: Path, moment: int) -> bool:
    """Record in a child; whether it got through."""
    child = os.fork()
    if child == 0:
        die_at(moment, str(out))
        record(plan, out, episodes=3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFEXITED(status)


def main(world: str, mortal: str, undisturbed: str) -> None:
    torch.set_num_threads(1)
    tasks.TASKS["short"] = lambda: tasks.Callback(lambda context: context.steps.astype(float), "short")
    plan = Plan("random", world=world, task="short", envs=2, steps=2)
    record(plan, Path(undisturbed), episodes=3)
    lives, counts = 0, []
    while not live(plan, Path(mortal), lives + 1):
        lives += 1
        if not (Path(mortal) / "manifest.json").exists():
            counts.append(len(list((Path(mortal) / PARTS).glob("*.clip"))))
    print(json.dumps({"lives": lives + 1, "counts": counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
