"""The whole story, from top to bottom: a look at the world, starts, an agent before, its training, and after.

    out/run.json              what the story is of; another one is refused in the same folder
    out/demo.mp4              the world by itself
    out/starts/               where episodes begin: train, validation and test, in different levels; those to learn from
                              are moments of recordings, those to be judged by the task's own starts
    out/agent/                the training: a folder for `train_agent`
    out/episodes/             every evaluation, with the first pictures
    out/seconds.json          how long the chapters took
    out/before-after.mp4, report.html, report.json

What is there is not made again, so that the same command goes on with a story that was interrupted.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from agents.checkpoints import remember
from agents.places import DEFAULT_TASK, GAME, IMAGINED_STEPS
from agents.policies import checkpoints
from agents.policies.card import read_card
from agents.story import plots
from agents.story.clock import Clock
from agents.story.findings import AFTER, BEFORE, POLICIES, RANDOM, SCRIPTED, Findings, Story
from agents.story.page import Pictures, Shelf, page
from agents.story.played import SLOTS, Playhouse
from agents.story.video import strip, write_before_after
from agents.train import AgentRun, train_agent, untrained_agent
from world_model.data.doom.record import record  # a missing ViZDoom is missed now, not in minutes
from world_model.data.doom.task_starts import record_task_starts
from world_model.data.store import write_json
from world_model.files import whole
from world_model.world import World
from wp2env.cli import demo
from wp2env.game_starts import bank_of
from wp2env.loading import WorldHandle
from wp2env.recorded_starts import MOMENT_FRAMES, starts_on_the_way
from wp2env.starts import StartBank, find_bank
from wp2env.tasks import bind_task, make_task

ATTEMPTS, ATTEMPT_FRAMES = 600, 40  # recorded clips; one in six comes to the ball, a dozen frames after its beginning
MOMENTS = 600  # of these ways
FILMED = 4  # episodes
REPORT_SECONDS = 20.0  # to write it, at most
REPORT, PAGE, FILM, DEMO = "report.json", "report.html", "before-after.mp4", "demo.mp4"
SECONDS = "seconds.json"
CHAPTERS = {
    "demo": "a look at the world",
    "starts": f"places in the true game from which to {DEFAULT_TASK}",
    "before": "the agent before it has learned anything, beside random acts and a script",
    "training": "training, in the generated world alone",
    "after": "the agent after training",
    "report": "the report",
}


def tell(story: Story, out: Path) -> Findings | None:
    """Tell the story into a folder, or what is missing of it.

    Returns:
        What came out, also of a story that was told before; None when a signal stopped the training, and the same
        call then goes on.

    Raises:
        ValueError: for a world that cannot tell it, or a folder that holds something else.
        FileNotFoundError: when there is no such world.
    """
    if is_told(out):
        remember(out, story.settings())
        return collect(story, out)
    world = _able(story)
    remember(out, story.settings())
    house = _playhouse(story, out)
    house.folder.mkdir(exist_ok=True)
    agent = _run(story, out)
    clock = Clock(out / SECONDS)
    with _chapter("demo", clock):
        _show_world(story, world, out / DEMO)
    with _chapter("starts", clock):
        _record_starts(story, world, house)
    with _chapter("before", clock):
        untrained = _reached(out / "agent", 0) or untrained_agent(agent, out / "agent")
        for name, policy in ((RANDOM, "random"), (SCRIPTED, "scripted"), (BEFORE, str(untrained))):
            house.play("test", story.episodes, name, policy, FILMED)
        _try_out(story, untrained, house)
    with _chapter("training"):
        if not _train(story, agent, out / "agent", house, clock):
            return None
    with _chapter("after", clock):
        house.play("test", story.episodes, AFTER, str(_stages(story, out / "agent")[-1]), FILMED)
    with _chapter("report", clock):
        findings = collect(story, out)
        _report(findings, house, out)
    return findings


def is_told(out: Path) -> bool:
    """Whether the folder holds a story to its end."""
    return all((out / name).is_file() for name in (REPORT, PAGE, FILM))


def collect(story: Story, out: Path) -> Findings:
    """What came out of a story that was told.

    Raises:
        FileNotFoundError, ValueError: for a part of it that is missing or damaged.
    """
    house, agent = _playhouse(story, out), out / "agent"
    reached = _stages(story, agent)
    return Findings(
        story,
        read_card(reached[-1]).steps,
        {name: house.evaluations("test", name) for name in POLICIES},
        [
            (read_card(folder).steps, house.evaluations("validation", _after(folder), (GAME,))[GAME])
            for folder in reached
        ],
        Clock(out / SECONDS).seconds,
    )


def _able(story: Story) -> World:
    """The story's world, if it can tell the story."""
    world = WorldHandle(story.world, "cpu", story.dtype).get()
    bind_task(make_task(DEFAULT_TASK), world)
    video = world.config.video
    if video.height != video.width:
        raise ValueError(
            f"the world {story.world!r} shows pictures of {video.height}x{video.width} and the game square ones; "
            "choose another world"
        )
    return world


def _playhouse(story: Story, out: Path) -> Playhouse:
    banks = {split: out / "starts" / f"{split}.safetensors" for split in ("train", "validation", "test")}
    return Playhouse(story, out / "episodes", banks)


def _run(story: Story, out: Path) -> AgentRun:
    return AgentRun(
        DEFAULT_TASK, world=story.world, starts=str(out / "starts" / "train.safetensors"), envs=SLOTS,
        episode_steps=IMAGINED_STEPS, seed=story.seed, dtype=story.dtype,
    )  # fmt: skip


@contextmanager
def _chapter(name: str, clock: Clock | None = None) -> Iterator[None]:
    """Announce a chapter, and measure it, unless it is measured in parts."""
    print(f"{list(CHAPTERS).index(name) + 1}/{len(CHAPTERS)} {CHAPTERS[name]}", flush=True)
    with nullcontext() if clock is None else clock.measure(name):
        yield


def _show_world(story: Story, world: World, file: Path) -> None:
    """The video that `wp2 demo` writes, of a world that brings starts of its own."""
    if file.is_file():
        return
    if find_bank(None, world.path) is None:
        print(f"  no {file.name}: the world {story.world!r} brings no starts")
        return
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    demo.main(parser.parse_args(["--world", story.world, "--seed", str(story.seed), "--out", str(file)]))


def _record_starts(story: Story, world: World, house: Playhouse) -> None:
    size = world.config.video.height
    for split, file in house.starts.items():
        if file.is_file():
            continue
        file.parent.mkdir(exist_ok=True)
        if split == "train":
            bank = _moments(story.seed, size, file.parent / "recordings")
        else:
            count = {"validation": story.tries, "test": story.episodes}[split]
            starts = record_task_starts(DEFAULT_TASK, count, split=split, seed=story.seed, size=size)
            bank = bank_of(list(tqdm(starts, total=count, unit="start", desc=split, leave=False)))
        bank.save(file)
        print(f"  {file}: {len(bank)} starts", flush=True)


def _moments(seed: int, size: int, recordings: Path) -> StartBank:
    """Moments on recorded ways to the ball, from which an imagined episode may be short."""
    store = record(recordings, clips=ATTEMPTS, frames=ATTEMPT_FRAMES, size=size, seed=seed, play="tasks")
    bank = starts_on_the_way(store, DEFAULT_TASK, MOMENTS, MOMENT_FRAMES, np.random.default_rng(seed))
    shutil.rmtree(recordings)
    return bank


def _train(story: Story, run: AgentRun, agent: Path, house: Playhouse, clock: Clock) -> bool:
    """Train stage by stage, as long as there is time, and try the agent out after each; False when a signal asked to
    stop."""
    done = 0
    for steps in story.stages[1:]:
        folder = _reached(agent, steps)
        if folder is None and done and _is_late(story, clock, done, steps):
            print(f"  no time is left for more than {done} of {story.steps} steps", flush=True)
            return True
        with clock.measure("training"):
            folder = folder or train_agent(run, steps, agent)
            done = read_card(folder).steps
            if done < steps:
                return False
            _try_out(story, folder, house)
    return True


def _try_out(story: Story, agent: Path, house: Playhouse) -> None:
    """See how well an agent does in the game, which costs little; in the world it would cost as much as training."""
    house.play("validation", story.tries, _after(agent), str(agent), places=(GAME,))


def _is_late(story: Story, clock: Clock, done: int, steps: int) -> bool:
    """Whether going on from ``done`` to so many steps would leave too few of the story's minutes for its end, which is
    one policy more to be judged, of the three that there were before."""
    if story.minutes is None:
        return False
    end = clock.seconds["before"] / 3 + REPORT_SECONDS
    return clock.total + clock.seconds["training"] / done * (steps - done) + end > 60 * story.minutes


def _stages(story: Story, agent: Path) -> list[Path]:
    """The checkpoints at the ends of the stages that were trained; one may end several short ones."""
    reached = (_reached(agent, steps) for steps in story.stages)
    return list(dict.fromkeys(folder for folder in reached if folder is not None))


def _reached(agent: Path, steps: int) -> Path | None:
    """The first checkpoint after so many steps."""
    return next((folder for folder in checkpoints(agent) if read_card(folder).steps >= steps), None)


def _after(checkpoint: Path) -> str:
    """What the agent of a checkpoint is called."""
    return f"after {read_card(checkpoint).steps} steps"


def _report(findings: Findings, house: Playhouse, out: Path) -> None:
    rows = {name: house.played("test", name) for name in (BEFORE, AFTER)}
    write_before_after(out / FILM, rows)
    _, encoded = cv2.imencode(".png", strip(rows)[..., ::-1])
    pictures = Pictures(plots.policies(findings), plots.learning(findings), encoded.tobytes())
    demo_video = DEMO if (out / DEMO).is_file() else None
    trained = _stages(findings.story, out / "agent")[-1]
    with whole(out / PAGE) as part:
        part.write_text(page(findings, pictures, Shelf(trained, house.starts, demo_video, FILM)), encoding="utf-8")
    write_json(out / REPORT, findings.as_dict())
