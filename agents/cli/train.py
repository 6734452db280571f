"""``wp2 train-agent``: an agent learns a task, in a generated world or in the true game."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium.vector import AutoresetMode

from agents.evaluate import evaluate
from agents.film import FILMED, Film, write_film
from agents.places import DEFAULT_TASK, EPISODE_STEPS, PLACES, WORLD
from agents.policies import load_policy
from agents.policies.card import ACTION_MODES, ALGORITHMS, read_card
from world_model.checkpoint import DTYPES
from wp2env.cli.arguments import MAX_SEED, whole
from wp2env.cli.main import INTERRUPTED
from wp2env.cli.video import check_video
from wp2env.loading import WorldHandle
from wp2env.starts import find_bank

if TYPE_CHECKING:
    from agents.train import AgentRun

MAX_STEPS, MAX_ENVS, MAX_STACK, MAX_EPISODE = 10**9, 1024, 64, 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 train-agent``."""
    steps = whole(1, MAX_STEPS)
    parser.add_argument("--steps", type=steps, required=True, help="environment steps of all slots together")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--task", default=DEFAULT_TASK, help="what it has to learn (%(default)s)")
    parser.add_argument("--algo", choices=ALGORITHMS, default="ppo", help="of Stable-Baselines3 (%(default)s)")
    parser.add_argument("--in", dest="place", choices=PLACES, default=WORLD, help="where (%(default)s)")
    parser.add_argument("--world", default="doom", help="a bundled world or a folder with one (%(default)s)")
    parser.add_argument("--starts", type=Path, help="where episodes begin (default in a world: its own starts)")
    parser.add_argument("--envs", type=whole(1, MAX_ENVS), default=16, help="slots side by side (%(default)s)")
    parser.add_argument(
        "--episode-steps", type=whole(1, MAX_EPISODE), default=EPISODE_STEPS, help="of one episode (%(default)s)"
    )
    parser.add_argument("--action-mode", choices=ACTION_MODES, default="discrete", help="(%(default)s)")
    parser.add_argument(
        "--frame-stack", type=whole(1, MAX_STACK), default=1, help="newest pictures that it sees together (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=whole(0, MAX_SEED), default=0, help="of all that is left to chance (%(default)s)"
    )
    parser.add_argument("--eval-starts", type=Path, help="other starts, to see on the way how well it does")
    parser.add_argument("--eval-episodes", type=whole(1, 10_000), default=32, help="of them (%(default)s)")
    parser.add_argument("--eval-every", type=steps, default=10_000, help="steps between (%(default)s)")
    parser.add_argument("--save-every", type=steps, default=10_000, help="steps between checkpoints (%(default)s)")
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), default="float32", help="that the world calculates in (%(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for the world (%(default)s)")
    parser.add_argument("--video", type=Path, help=f"film {FILMED} episodes in the end, to this .mp4 or .gif file")


def main(settings: argparse.Namespace) -> int:
    """Train, and say where the agent is; 130 after an interrupt."""
    from agents.keeping import Keeping, Validation
    from agents.train import AgentRun, train_agent

    if settings.video is not None:
        check_video(settings.video)
    if settings.place != WORLD and settings.starts is None:
        raise ValueError("the true game needs --starts; write them with `wp2 starts doom`")
    run = AgentRun(
        settings.task, settings.algo, settings.place, settings.world, _text(settings.starts), settings.envs,
        settings.episode_steps, settings.action_mode, settings.frame_stack, settings.seed, settings.dtype,
    )  # fmt: skip
    validation = None
    if settings.eval_starts is not None:
        validation = Validation(_text(settings.eval_starts), settings.eval_episodes, settings.eval_every)
    keeping = Keeping(settings.save_every)
    newest = train_agent(
        run, settings.steps, settings.out, validation=validation, keeping=keeping, device=settings.device
    )
    done = read_card(newest).steps
    if done < settings.steps:
        print(f"wp2 train-agent: interrupted after {done} steps; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    print(f"{newest}: {settings.algo} after {done} steps of {settings.task!r}; see `wp2 evaluate {settings.out}`")
    if settings.video is not None:
        _film(run, settings, newest)
    return 0


def _film(run: AgentRun, settings: argparse.Namespace, newest: Path) -> None:
    """A video of episodes from the validation starts, or from those that it learned from."""
    starts = _text(settings.eval_starts) or run.starts
    bank = find_bank(starts, None if starts is not None else WorldHandle(run.world, settings.device).folder)
    count = min(FILMED, len(bank))
    film, policy = Film(count), load_policy(str(newest), num_envs=count, seed=run.seed)
    with run.env(count, starts, AutoresetMode.DISABLED, settings.device) as env:
        found = evaluate(policy, env, range(count), run.episode_steps, run.seed, film)
        write_film(settings.video, [film], [found], env.metadata["render_fps"])
    print(f"{settings.video}: {count} episodes in the {run.place}")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
