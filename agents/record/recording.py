"""The flow of a recording: play what is missing, keep each episode as it ends, assemble the dataset at last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tqdm import tqdm

from agents.record import FORMATS, as_clips, as_lerobot, as_minari
from agents.record.crew import Crew, WorkersDied
from agents.record.parts import Parts
from agents.record.plan import Plan, versions
from agents.record.play import Player

WRITERS = dict(zip(FORMATS, (as_clips, as_minari, as_lerobot), strict=True))


class Broken(RuntimeError):
    """A recording that could not go on; the message says why, how much is done and what to do."""


def record(
    plan: Plan,
    out: Path | str,
    *,
    episodes: int,
    form: str = "clips",
    licence: str = "",
    hire: Callable[[Plan, str], Player | Crew] = Player,
    progress: bool = False,
) -> None:
    """Record ``episodes`` episodes of ``plan`` into the folder ``out`` as a dataset of a form in `FORMATS`.

    ``hire(plan, licence)`` makes who plays: a `Player` in this process, or a `Crew`. The same call again plays what is
    missing, whatever ended the first one. Only episodes that have ended are kept, and the dataset appears when all of
    them are there.

    Raises:
        ValueError: for a number of episodes below 1, an unknown form, a policy, task or starts that do not fit the
            world, and a folder that holds another recording.
        FileNotFoundError: when there is no such world, policy or file of starts.
        ImportError: when a package that writes the form is not installed.
        Broken: when the disk is full or fails, or workers die again and again.
        KeyboardInterrupt: with a message as `Broken` has.
    """
    out = Path(out)
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}; record at least 1")
    if form not in FORMATS:
        raise ValueError(f"the format {form!r} is unknown; choose one of {', '.join(FORMATS)}")
    name = out.resolve().name
    WRITERS[form].check(name, plan)
    recipe = {**plan.recipe(), "format": form, "licence": licence}
    with closing(Parts(out, recipe, episodes)) as parts:
        if parts.complete:
            return
        about = {**recipe, "episodes": episodes, "versions": versions()}
        try:
            _play(parts, plan, lambda: hire(plan, licence), progress)
            with _disk(parts):
                parts.assemble(lambda folder: WRITERS[form].write(folder, parts.clips(), name, about))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; {_state(parts)}") from None
        except WorkersDied as error:
            raise Broken(f"{error}; {_state(parts)}") from None


def _play(parts: Parts, plan: Plan, hire: Callable[[], Player | Crew], progress: bool) -> None:
    waves = plan.waves(parts.episodes, parts.done)
    if not waves:
        return
    done = parts.episodes - parts.missing
    with closing(hire()) as players, tqdm(total=parts.episodes, initial=done, unit="ep", disable=not progress) as bar:
        for episode, clip in players.play(waves):
            with _disk(parts):
                parts.add(episode, clip)
            bar.update(parts.episodes - parts.missing - bar.n)


@contextmanager
def _disk(parts: Parts) -> Iterator[None]:
    """Say in one sentence what a failed write means."""
    try:
        yield
    except OSError as error:
        where = parts.out if error.filename is None else error.filename
        why = error.strerror or str(error)
        raise Broken(f"writing to {where} failed ({why}); free or mend the disk: {_state(parts)}") from error


def _state(parts: Parts) -> str:
    done = parts.episodes - parts.missing
    return f"{done} of {parts.episodes} episodes are done, and the same command goes on from there"
