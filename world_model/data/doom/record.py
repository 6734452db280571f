"""``record doom``: clips of the Doom engine into a store, in child processes, resumable and reproducible.

The same seed gives the same clips bit for bit, however many workers record them: a clip depends on (seed, split,
clip index, frames, size, play) only. Every clip is put on disk as it is finished, so a crash of the engine costs the
clip in hand and nothing else; a fresh child records that clip again, which gives the same bits. Only a clip that
brings the engine down every time is lost. The same command again records all that is missing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tqdm import tqdm

from world_model.data.doom.job import ENGINE_DIED, Job, jobs, serve, unpack
from world_model.data.doom.recipe import PLAYS, SPLITS, Recipe
from world_model.data.store import MANIFEST, ClipStore, ShardEntry, read_manifest, sha256_of, write_manifest

CHECK_SECONDS = 2.0  # how often to look whether a silent child is still there
TRIES = 2  # for a clip in whose recording the child dies
CRASHES_IN_A_ROW = 2 * TRIES + 1  # without a finished clip in between: the engine itself does not work
PATIENCE = 10.0  # seconds for a child to close its engine
SILENCE, SLOWEST = 120.0, 20.0  # seconds, and frames a second, after which a silent child is taken for stuck
PLAY_HELP = "revisits and mirror: places are seen again; tasks: goals are reached, or just not"


@dataclass
class Worker:
    """A child process, the shard it has been given and the clip it has in hand."""

    process: multiprocessing.Process
    pipe: Connection
    core: int
    job: Job | None = None
    clip: int | None = None
    heard: float = field(default_factory=time.monotonic)  # when it last said something


@dataclass
class Recording:
    """The parent's side of one run: what waits, what is done, who works."""

    out: Path
    recipe: Recipe
    clips: int
    entries: dict[str, ShardEntry]
    waiting: deque[Job]
    bar: tqdm
    lost: set[int] = field(default_factory=set)
    crashes: int = 0  # in a row
    crashes_of: Counter[int] = field(default_factory=Counter)  # by clip

    def run(self, workers: int) -> None:
        """Record all that waits."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
        staff = [self.hire(cores[k % len(cores)]) for k in range(min(workers, len(self.waiting)))]
        processes = {worker.process for worker in staff}
        try:
            staff = [worker for worker in staff if self.give_job(worker)]
            while staff:
                ready = wait([worker.pipe for worker in staff], timeout=CHECK_SECONDS)
                staff = [worker for worker in (self.attend(w, w.pipe in ready) for w in staff) if worker]
                processes |= {worker.process for worker in staff}
        finally:
            for worker in staff:  # only after an error or an interrupt
                worker.process.terminate()
            for process in processes:
                process.join(PATIENCE)

    def hire(self, core: int) -> Worker:
        """Start a child on a core."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, core, self.out, self.recipe), daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours, core)

    def give_job(self, worker: Worker) -> bool:
        """Hand a waiting shard to the worker; False (and dismissal) if none is left."""
        worker.job = self.waiting.popleft() if self.waiting else None
        with suppress(ConnectionError):  # it has died meanwhile; `attend` will notice
            worker.pipe.send((worker.job, self.lost) if worker.job else None)
        return worker.job is not None

    def attend(self, worker: Worker, spoke: bool) -> Worker | None:
        """Listen to a worker or look after it; who goes on in its place, None if its work is done."""
        silence = SILENCE + self.recipe.frames / SLOWEST
        cause = ""
        try:
            if spoke:
                worker.heard = time.monotonic()
                return worker if self.listen(worker) or self.give_job(worker) else None
            if worker.process.is_alive():
                if time.monotonic() - worker.heard < silence:
                    return worker
                cause = f"nothing was heard of its process for {silence:.0f} seconds"
                worker.process.kill()
        except (EOFError, ConnectionError):
            pass
        self.mourn(worker, cause)
        replacement = self.hire(worker.core)
        return replacement if self.give_job(replacement) else None

    def listen(self, worker: Worker) -> bool:
        """Handle one message; False when the shard is done."""
        message, content = worker.pipe.recv()
        if message == "began":
            worker.clip = content
        elif message == "recorded":
            worker.clip, self.crashes = None, 0
            self.bar.update(self.recipe.frames)
        elif message == "failed":
            raise RuntimeError(f"recording into {self.out} failed ({content}); once that is mended, call it again")
        else:
            worker.job = None
            if content:
                self.entries[content.file] = content
            self.save()
            return False
        return True

    def mourn(self, worker: Worker, cause: str = "") -> None:
        """The child died: put its shard back, without the clip in hand if that has had its tries."""
        given_up = time.monotonic() + PATIENCE
        while worker.process.is_alive() and time.monotonic() < given_up:
            time.sleep(0.01)  # its pipe closes a moment before it ends; `join` would wait for an orphaned engine too
        with suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)  # an engine would outlive it
        worker.process.join()
        self.crashes += 1
        code = worker.process.exitcode
        cause = cause or ("the Doom engine stopped" if code == ENGINE_DIED else f"its process ended with code {code}")
        if self.crashes >= CRASHES_IN_A_ROW:
            raise RuntimeError(
                f"{self.crashes} recorders in a row died without finishing a clip (last: {cause}); check that "
                "`pip install vizdoom` works on this machine and that its disk and memory are not full"
            )
        if worker.clip is not None:
            self.crashes_of[worker.clip] += 1
            if self.crashes_of[worker.clip] < TRIES:
                self._say(f"Clip {worker.clip} was broken off because {cause}; it is recorded again.")
            else:
                self.lost.add(worker.clip)
                self._say(f"Clip {worker.clip} is lost because {cause}; recording goes on with the next one.")
        if worker.job:
            self.waiting.appendleft(worker.job)

    def _say(self, text: str) -> None:
        self.bar.write(text, file=sys.stderr)

    def save(self) -> None:
        """Write the manifest as it is now."""
        write_manifest(self.out, self.entries.values(), {**self.recipe.told(), "clips": self.clips})


def _survey(out: Path, recipe: Recipe, clips: int) -> tuple[dict[str, ShardEntry], list[Job]]:
    """What is already complete in the folder, and which shards are to be recorded. The clips of an intact shard that
    lacks some (lost ones, or more are wanted now) go back among the finished clips of that shard."""
    wanted = jobs(recipe, clips)
    if not (out / MANIFEST).exists():
        return {}, wanted
    entries, old = read_manifest(out)
    old.pop("clips", None)
    if old != recipe.told():
        raise ValueError(f"{out} holds clips recorded with {old}, not {recipe.told()}; choose another folder")
    by_file, complete = {job.file: job for job in wanted}, {}
    for entry in entries:
        path, job = out / entry.file, by_file.get(entry.file)
        if job is None or not path.exists() or path.stat().st_size != entry.bytes:
            continue
        if entry.clips == len(job.clips):
            complete[entry.file] = entry
        elif sha256_of(path) == entry.sha256:
            unpack(path, job.parts(out))
    return complete, [job for job in wanted if job.file not in complete]


def record(
    out: Path | str,
    *,
    clips: int,
    frames: int,
    size: int = 64,
    seed: int = 0,
    workers: int = 1,
    split: str = "train",
    play: str = "everything",
    progress: bool = True,
) -> ClipStore:
    """Record ``clips`` clips of ``frames`` frames of ``size`` x ``size`` pixels into the folder ``out``.

    ``play`` names the mix of policies: "everything"; "revisits", for long clips that see places again; "mirror", whose
    second half undoes the first one row by row: of ``1 + 2n`` frames, frame ``n + k`` looks from where ``n - k`` did;
    "tasks", whose clips begin before the goal of a task and carry it out or fail.
    Complete shards that are already there are kept, so the same call goes on where another one stopped, and a call
    with more clips adds to them; clips that were lost are tried again. Returns the opened store. Raises `ValueError`
    for impossible numbers, unknown names and a folder that holds another recording, `RuntimeError` when the engine or
    the disk does not work at all.
    """
    limits = {"clips": (clips, 1, 10**7), "frames": (frames, 2, 10**5), "workers": (workers, 1, 512)}
    limits |= {"size": (size, 8, 480), "seed": (seed, 0, 2**63)}
    for name, (value, low, high) in limits.items():
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}, allowed are {low} to {high}")
    if size % 8:
        raise ValueError(f"size is {size}, which no codec takes; choose a multiple of 8, such as 64 or 128")
    if split not in SPLITS:
        raise ValueError(f"split {split!r} does not exist; choose one of {', '.join(SPLITS)}")
    if play not in PLAYS:
        raise ValueError(f"play {play!r} does not exist; choose one of {', '.join(PLAYS)}")
    if split == "freedoom" and play != PLAYS[0]:
        raise ValueError(f"play {play!r} needs a generated level's map, which freedoom lacks; choose another split")
    out, recipe = Path(out), Recipe(seed, split, frames, size, play)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{out} cannot be made a folder ({error.strerror}); choose another one") from None
    entries, todo = _survey(out, recipe, clips)
    done = clips - sum(len(job.clips) for job in todo)
    with tqdm(total=clips * frames, initial=done * frames, unit="frame", disable=not progress) as bar:
        recording = Recording(out, recipe, clips, entries, deque(todo), bar)
        recording.save()
        recording.run(workers)
    return ClipStore(out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``record doom``."""
    parser.add_argument("--out", type=Path, required=True, help="folder of the store; an interrupted one is continued")
    parser.add_argument("--clips", type=int, required=True, help="number of clips")
    parser.add_argument("--frames", type=int, default=64, help="frames per clip, 8.75 a second")
    parser.add_argument("--size", type=int, default=64, help="side of a frame in pixels (64 or 128)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same clips")
    parser.add_argument("--workers", type=int, default=1, help="child processes, one core each")
    parser.add_argument("--split", choices=SPLITS, default="train", help="which levels; freedoom is out of domain")
    parser.add_argument("--play", choices=PLAYS, default=PLAYS[0], help=PLAY_HELP)
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def main(args: argparse.Namespace) -> None:
    """Run ``record doom``."""
    options = {name: getattr(args, name) for name in ("clips", "frames", "size", "seed", "workers", "split", "play")}
    try:
        store = record(args.out, progress=not args.no_progress, **options)
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"record doom: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("record doom: interrupted; the same command goes on from here") from None
    missing = args.clips - len(store)
    print(f"{len(store)} clips in {args.out}")
    if missing:
        print(f"{missing} clips are lost; the same command tries them again", file=sys.stderr)


if __name__ == "__main__":
    command_line = argparse.ArgumentParser(description=__doc__)
    add_arguments(command_line)
    main(command_line.parse_args())
