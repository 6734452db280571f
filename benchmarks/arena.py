"""Where policies are compared: all play the same starts with the same seeds, in several places, and what was played is
kept, so that an interrupted benchmark goes on where it stopped."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from tqdm import tqdm

from agents.crippled_worlds import ShuffledActions, StillWorld, untrained
from agents.evaluate import RETURN, SUCCESS, Evaluation, evaluate
from agents.places import GAME, WORLD, make_env
from agents.policies import load_policy
from agents.policies.card import CARD, CLONED, STABLE_BASELINES, read_card
from benchmarks import report
from world_model.checkpoint import DTYPES, WEIGHTS, find_world
from world_model.data.doom.task_names import WALK_TO_BALL
from world_model.data.store import sha256_of, write_json
from world_model.reward import REWARD_FILE
from wp2env.loading import WorldHandle
from wp2env.starts import read_bank

STILL, SHUFFLED, UNTRAINED = "picture stays (control)", "actions shuffled (control)", "untrained world (control)"
CONTROLS = STILL, SHUFFLED, UNTRAINED
TRAIN, TEST = "train", "test"  # splits of levels; no level is in both
STARTS, QUICK_STARTS = 128, 32  # to learn from
EPISODES, QUICK_EPISODES = 64, 8
CLIPS, QUICK_CLIPS, CLIP_FRAMES = 400, 48, 40  # of recordings that are made
QUICK_CLONE_STEPS = 200
Contestant = tuple[str, int]  # a policy as `load_policy` takes it, and its seed


@dataclass(frozen=True)
class Arena:
    """What is the same for every policy and place.

    Attributes:
        task: the task's name.
        world: name or folder of the generated world.
        starts: file of the starts; an episode's number is its place there.
        steps: the longest an episode can be.
        seed: of episode 0; the next ones follow.
        kept: folder for what was played.
    """

    task: str
    world: str
    starts: Path
    steps: int
    envs: int
    seed: int
    device: str
    dtype: str  # that the generated world calculates in
    kept: Path

    def make(self, place: str, temperature: float = 1.0, world: Any = None) -> VectorEnv:
        """Slots in the true game, or in the generated world, or in another one."""
        return make_env(
            place, self.envs, task=self.task, starts=self.starts, world=world or self.world, device=self.device,
            autoreset_mode=AutoresetMode.DISABLED, max_episode_steps=self.steps, dtype=self.dtype,
            temperature=temperature,
        )  # fmt: skip

    def controls(self) -> dict[str, Callable[[], VectorEnv]]:
        """Worlds in which policies cannot be told apart by what they do."""
        world = WorldHandle(self.world, self.device, self.dtype)
        return {
            STILL: lambda: self.make(WORLD, world=StillWorld(world.get())),
            SHUFFLED: lambda: ShuffledActions(self.make(WORLD)),
            UNTRAINED: lambda: self.make(WORLD, world=untrained(world.get(), self.seed)),
        }

    def play(
        self,
        place: str,
        make: Callable[[], VectorEnv],
        contestants: Mapping[Hashable, Contestant],
        lengths: Sequence[int],
        episodes: range,
    ) -> dict[tuple[Hashable, int], Evaluation]:
        """Every contestant's evaluation by its name and the length of episodes; the place is made if it is needed.

        Episodes are played at the greatest length; shorter ones are their beginnings.
        """
        found, env, longest = {}, None, max(lengths)
        about = self._about(place)
        with ExitStack() as stack:
            for name, (policy, seed) in tqdm(contestants.items(), unit="evaluation", desc=place):
                asked = {**about, "policy": fingerprint(policy), "policy seed": seed, "steps": longest}
                file = self._file({**asked, "episodes": [episodes.start, episodes.stop], "kept": "every step"})
                if not file.is_file():
                    env = env or stack.enter_context(closing(make()))
                    acts = load_policy(policy, num_envs=env.num_envs, seed=seed)
                    _keep(file, asked, evaluate(acts, env, episodes, longest, self.seed + episodes.start))
                played = _read(file)
                found |= {(name, length): played.within(length) for length in lengths}
        return found

    def _about(self, place: str) -> dict[str, Any]:
        world = {}
        if not place.startswith(GAME):
            folder = find_world(self.world)
            files = [folder / name for name in ("config.json", WEIGHTS, REWARD_FILE)]
            world = {file.name: sha256_of(file) for file in files if file.is_file()} | {"dtype": self.dtype}
        return {
            "place": place,
            "world": world,
            "task": self.task,
            "starts": sha256_of(self.starts),
            "slots": self.envs,
            "seed": self.seed,
        }

    def _file(self, asked: Mapping[str, Any]) -> Path:
        return self.kept / f"{hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]}.json"


def measures(evaluation: Evaluation) -> list[str]:
    """What policies are compared by: success, where the task has it, and return."""
    return [name for name in (SUCCESS, RETURN) if name in evaluation.measures]


def fingerprint(policy: str) -> str:
    """What tells a policy from others: its name, or the checksums of its weights."""
    path = Path(policy)
    if not path.exists():
        return policy
    weights = (
        [path] if path.is_file() else sorted(file for name in (STABLE_BASELINES, CLONED) for file in path.rglob(name))
    )
    return " ".join(sha256_of(file) for file in weights)


def settle(settings: argparse.Namespace) -> None:
    """Make a quick run small and a run of its own, and refuse numbers that cannot work.

    Raises:
        ValueError: naming the option.
    """
    report.require_positive(settings, "episodes", "envs", "clone_steps", "clips")
    if settings.seed < 0:
        raise ValueError(f"--seed is {settings.seed}; give a number from 0 on")
    if settings.quick:
        settings.episodes, settings.clips = min(settings.episodes, QUICK_EPISODES), QUICK_CLIPS
        settings.clone_steps, settings.out = QUICK_CLONE_STEPS, settings.out / "quick"
    settings.envs = min(settings.envs, settings.episodes)


def build(settings: argparse.Namespace, steps: int, size: int) -> Arena:
    """An arena for episodes of up to ``steps`` steps from held-out starts with pictures of ``size`` pixels.

    Raises:
        ValueError: when there are too few starts, or nothing to record some with.
    """
    starts = _starts(settings.starts, settings, TEST, 2 * settings.episodes, size)
    if len(read_bank(starts)) < settings.episodes:
        raise ValueError(f"--episodes is {settings.episodes} and {starts} holds {len(read_bank(starts))} starts")
    return Arena(
        settings.task, settings.world, starts, steps, settings.envs, settings.seed, settings.device,
        settings.dtype, settings.out / "played",
    )  # fmt: skip


def starts_to_learn_from(settings: argparse.Namespace, size: int) -> Path:
    """Starts in levels of training.

    Raises:
        ValueError: when there is nothing to record some with.
    """
    return _starts(settings.train_starts, settings, TRAIN, QUICK_STARTS if settings.quick else STARTS, size)


def _starts(given: Path | None, settings: argparse.Namespace, split: str, count: int, size: int) -> Path:
    """The given file, or one of so many starts that is recorded now, unless it is there already."""
    if given is not None:
        read_bank(given)
        return given
    name = f"starts-{settings.task.replace(' ', '-')}-{split}-{count}-{size}px-seed{settings.seed}.safetensors"
    file = settings.out / name
    if not file.is_file():
        report.require_engine()
        from world_model.data.doom.task_starts import record_task_starts
        from wp2env.game_starts import bank_of

        starts = record_task_starts(settings.task, count, split=split, seed=settings.seed, size=size)
        file.parent.mkdir(parents=True, exist_ok=True)
        bank_of(list(tqdm(starts, total=count, unit="start", desc=f"recording {split} starts"))).save(file)
    return file


def recordings(settings: argparse.Namespace, size: int) -> Path:
    """The given recordings, or ``--clips`` clips of the task and failed attempts at it, which are made now unless they
    are there already.

    Raises:
        ValueError: when there is nothing to record with.
    """
    if settings.data is not None:
        return settings.data
    report.require_engine()
    from world_model.data.doom.record import record

    out = settings.out / f"recordings-{settings.clips}x{CLIP_FRAMES}-{size}px-seed{settings.seed}"
    workers = report.cores()
    record(out, clips=settings.clips, frames=CLIP_FRAMES, size=size, seed=settings.seed, workers=workers, play="tasks")
    return out


def cloned(data: Path, out: Path, task: str, steps: int, seed: int) -> Path:
    """A policy that imitates the players of recordings where they fulfil the task; one that is there already stays.

    Raises:
        ValueError: for recordings that hold nothing to imitate.
    """
    from agents.cloning import clone
    from world_model.data.store import ClipStore

    if (out / CARD).is_file():
        card = read_card(out)
        if (card.world, card.task, card.steps, card.seed) == (str(data), task, steps, seed):
            return out
    with tqdm(total=steps, unit="step", desc=f"cloning, seed {seed}") as bar:
        return clone(ClipStore(data), out, task=task, steps=steps, seed=seed, watch=lambda step, loss: bar.update())


def table(rows: Mapping[str, Mapping[str, report.Interval]], corner: str, decimals: int = 2) -> str:
    """One line per row, with the columns of the first one."""
    header = list(next(iter(rows.values())))
    cells = [[name, *(row[column].text(decimals) for column in header)] for name, row in rows.items()]
    return report.markdown_table([corner, *header], cells)


def add_options(parser: argparse.ArgumentParser, out: Path) -> None:
    """What benchmarks of policies take."""
    parser.add_argument("--task", default=WALK_TO_BALL, help="what policies have to do (default: %(default)s)")
    parser.add_argument("--starts", type=Path, help="held-out starts, of `wp2 starts doom` (default: record some)")
    parser.add_argument("--train-starts", type=Path, help="starts to learn from (default: record some)")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="starts to play from (default: %(default)s)")
    parser.add_argument("--data", type=Path, help="recordings to imitate (default: record some)")
    parser.add_argument("--clips", type=int, default=CLIPS, help="of a recording that is made (default: %(default)s)")
    parser.add_argument("--clone-steps", type=int, default=2000, help="gradient steps of it (default: %(default)s)")
    parser.add_argument("--envs", type=int, default=16, help="episodes side by side (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for the world (default: %(default)s)")
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), default="float32", help="that the world calculates in (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=out, help="folder for all that is kept (default: %(default)s)")


def _keep(file: Path, asked: Mapping[str, Any], evaluation: Evaluation) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {item.name: getattr(evaluation, item.name) for item in fields(Evaluation)}
    episodes = {name: None if values is None else values.tolist() for name, values in kept.items()}
    write_json(file, {"of": dict(asked), "episodes": episodes})


def _read(file: Path) -> Evaluation:
    try:
        kept = json.loads(file.read_text())["episodes"]
        fulfilled = None if kept["fulfilled"] is None else np.array(kept["fulfilled"], bool)
        numbers = (np.array(kept[name], kind) for name, kind in (("starts", int), ("lengths", int), ("rewards", float)))
        return Evaluation(*numbers, fulfilled)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged ({error!r}); delete it to have it played again") from error
