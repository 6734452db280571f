"""``wp2 evaluate``: a policy plays every start once, in a generated world, in the true game, or in both."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from agents.evaluate import Evaluation, as_numbers, by_place, gaps
from agents.film import FILMED, write_film
from agents.places import DEFAULT_TASK, EPISODE_STEPS, GAME, PLACES, WORLD
from agents.playing import Match
from world_model.checkpoint import DTYPES
from world_model.data.store import write_json
from world_model.intervals import Interval
from world_model.tables import markdown_table
from wp2env.cli.arguments import MAX_SEED, whole
from wp2env.cli.video import check_video
from wp2env.loading import WorldHandle
from wp2env.starts import find_bank

BOTH = "both"
MAX_ENVS, MAX_EPISODES, MAX_STEPS = 1024, 100_000, 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``wp2 evaluate``."""
    parser.add_argument("policy", metavar="POLICY", help="a policy's name, or the folder or .zip of a trained one")
    parser.add_argument("--in", dest="place", choices=(*PLACES, BOTH), default=WORLD, help="where (%(default)s)")
    parser.add_argument("--task", default=DEFAULT_TASK, help="what it has to do (%(default)s)")
    parser.add_argument("--world", default="doom", help="a bundled world or a folder with one (%(default)s)")
    parser.add_argument("--starts", type=Path, help="where episodes begin (default in a world: its own starts)")
    parser.add_argument("--episodes", type=whole(1, MAX_EPISODES), help="the first so many starts (default: all)")
    parser.add_argument("--envs", type=whole(1, MAX_ENVS), default=16, help="episodes side by side (%(default)s)")
    parser.add_argument("--steps", type=whole(1, MAX_STEPS), default=EPISODE_STEPS, help="longest (%(default)s)")
    parser.add_argument("--seed", type=whole(0, MAX_SEED), default=0, help="of all that is left to chance (0)")
    parser.add_argument(
        "--dtype", choices=tuple(DTYPES), default="float32", help="that the world calculates in (%(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for the world (%(default)s)")
    parser.add_argument("--json", type=Path, help="write everything, episode by episode, to this file")
    parser.add_argument("--video", type=Path, help=f"write the first {FILMED} episodes to this .mp4 or .gif file")


def main(settings: argparse.Namespace) -> None:
    """Print how well the policy does, and write what was asked for."""
    places = PLACES if settings.place == BOTH else (settings.place,)
    if settings.video is not None:
        check_video(settings.video)
    if settings.json is not None and not settings.json.parent.is_dir():
        raise ValueError(f"the folder {settings.json.parent} does not exist; make it first")
    episodes = _episodes(settings, places)
    match = Match(
        task=settings.task, starts=settings.starts, episodes=episodes, slots=settings.envs, steps=settings.steps,
        seed=settings.seed, world=settings.world, dtype=settings.dtype, device=settings.device,
    )  # fmt: skip
    filmed = FILMED if settings.video is not None else 0
    played = {place: match.play(settings.policy, place, filmed, leave_bar=True) for place in places}
    evaluations = {place: found.evaluation for place, found in played.items()}
    difference = gaps(evaluations[WORLD], evaluations[GAME], settings.seed) if settings.place == BOTH else {}
    print(_table(settings, evaluations, difference))
    if settings.json is not None:
        write_json(settings.json, _report(settings, evaluations, difference))
    if settings.video is not None:
        films = [found.film for found in played.values()]
        write_film(settings.video, films, list(evaluations.values()), played[places[-1]].rate)
        print(f"{settings.video}: {len(films[0].frames)} episodes, {' left, '.join(places)}"
              f"{' right' if len(places) > 1 else ''}")  # fmt: skip


def _episodes(settings: argparse.Namespace, places: tuple[str, ...]) -> int:
    """How many of the bank's starts to play.

    Raises:
        ValueError: when there are none, or not so many.
    """
    if settings.starts is None and GAME in places:
        raise ValueError("the true game needs --starts; write them with `wp2 starts doom`")
    folder = None if settings.starts is not None else WorldHandle(settings.world, settings.device).folder
    bank = find_bank(settings.starts, folder)
    if bank is None:
        raise ValueError(f"the world {settings.world!r} brings no starts; give some with --starts")
    episodes = len(bank) if settings.episodes is None else settings.episodes
    if episodes > len(bank):
        raise ValueError(f"there are {len(bank)} starts for {episodes} episodes; ask for fewer, or give more starts")
    return episodes


def _table(
    settings: argparse.Namespace, evaluations: Mapping[str, Evaluation], difference: Mapping[str, Interval]
) -> str:
    count = len(next(iter(evaluations.values())).starts)
    columns = {f"in the {place}": found.intervals(settings.seed) for place, found in evaluations.items()}
    if difference:
        columns["world - game"] = difference
    names = list(dict.fromkeys(name for found in columns.values() for name in found))
    rows = [[name, *(found[name].text(2) if name in found else "" for found in columns.values())] for name in names]
    table = markdown_table(["", *columns], rows)
    return f"{settings.policy}: {settings.task!r}, {count} episodes of up to {settings.steps} steps\n{table}"


def _report(
    settings: argparse.Namespace, evaluations: Mapping[str, Evaluation], difference: Mapping[str, Interval]
) -> dict[str, object]:
    return {
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()},
        "places": by_place(evaluations, settings.seed),
        "world - game": as_numbers(difference),
    }
