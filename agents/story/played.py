"""Episodes that were played, kept in files, so that a story that was interrupted does not play them again."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from agents.evaluate import SUCCESS, Evaluation
from agents.film import Film
from agents.places import DEFAULT_TASK, EPISODE_STEPS, PLACES
from agents.playing import Match, Played
from agents.story.findings import Places, Story, percent, success
from world_model.files import whole

SLOTS = 16  # episodes side by side


def save_played(played: Played, file: Path) -> None:
    """Write episodes under a temporary name and rename it; `load_played` is the inverse."""
    found = played.evaluation
    pictures = {f"film_{episode}": np.stack(frames) for episode, frames in enumerate(played.film.frames)}
    with whole(file) as part, part.open("wb") as opened:
        np.savez_compressed(
            opened, starts=found.starts, lengths=found.lengths, rewards=found.rewards, fulfilled=found.fulfilled,
            rate=played.rate, filmed=len(pictures), **pictures,
        )  # fmt: skip


def load_played(file: Path) -> Played:
    """What `save_played` wrote.

    Raises:
        ValueError: for a damaged file.
    """
    try:
        with np.load(file, allow_pickle=False) as held:
            film = Film(int(held["filmed"]))
            film.frames = [list(held[f"film_{episode}"]) for episode in range(len(film.frames))]
            values = [held[name] for name in ("starts", "lengths", "rewards", "fulfilled")]
            return Played(Evaluation(*values), film, float(held["rate"]))
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{file} is damaged ({error}); delete it and give the same command again") from error


class Playhouse:
    """Plays policies from the same starts in the world and in the game, each once.

    Args:
        folder: of the files with what was played.
        starts: files of starts by name.
    """

    def __init__(self, story: Story, folder: Path, starts: Mapping[str, Path]) -> None:
        self.story, self.folder, self.starts = story, folder, starts

    def play(
        self, bank: str, episodes: int, name: str, policy: str, filmed: int = 0, places: Sequence[str] = PLACES
    ) -> None:
        """Play the first ``episodes`` starts of a bank in each place, and say how it went; what was played stays.

        Args:
            name: that the policy has in this story.
            policy: as `load_policy` takes it.
            filmed: first episodes whose pictures are kept.
        """
        for place in places:
            file = self._file(bank, name, place)
            if not file.is_file():
                played = self._play(self.starts[bank], episodes, policy, place, filmed)
                save_played(played, file)
                share = success(played.evaluation, self.story.seed)
                print(f"  {name}, in the {place}: {percent(share)} of {episodes} episodes reach the ball", flush=True)

    def played(self, bank: str, name: str, places: Sequence[str] = PLACES) -> dict[str, Played]:
        """What was played there, by place.

        Raises:
            FileNotFoundError, ValueError: for a file that is missing or damaged.
        """
        return {place: load_played(self._file(bank, name, place)) for place in places}

    def evaluations(self, bank: str, name: str, places: Sequence[str] = PLACES) -> Places:
        """How that went, by place."""
        return {place: played.evaluation for place, played in self.played(bank, name, places).items()}

    def _file(self, bank: str, name: str, place: str) -> Path:
        return self.folder / f"{bank}-{name.replace(' ', '-')}-{place}.npz"

    def _play(self, starts: Path, episodes: int, policy: str, place: str, filmed: int) -> Played:
        story = self.story
        match = Match(
            task=DEFAULT_TASK, starts=starts, episodes=episodes, slots=SLOTS, steps=EPISODE_STEPS, seed=story.seed,
            world=story.world, dtype=story.dtype,
        )  # fmt: skip
        played = match.play(policy, place, filmed)
        if played.evaluation.successes is None:
            raise ValueError(f"the task {DEFAULT_TASK!r} told of no {SUCCESS} in the {place}; it cannot be judged")
        return played
