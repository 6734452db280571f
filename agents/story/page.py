"""The page that tells a story: one HTML file with its pictures in it, without scripts, beside the videos."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from agents.evaluate import LENGTH, SUCCESS
from agents.places import DEFAULT_TASK, EPISODE_STEPS, GAME, IMAGINED_STEPS, PLACES, WORLD
from agents.story.findings import AFTER, BEFORE, RANDOM, SCRIPTED, Findings, percent

TITLE = "Learned in a generated world, tried in the true game"
STYLE = """
:root { color-scheme: light; }
body { margin: 2.5rem auto 4rem; max-width: 46rem; padding: 0 1.25rem; background: #fdfdfb; color: #22262a;
       font: 1.05rem/1.6 Georgia, "Times New Roman", serif; }
h1, h2, th, figcaption, .kicker { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.2rem 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 0.6rem; }
.kicker { color: #6b7278; font-size: 0.9rem; margin: 0; }
.outcome { font-size: 1.2rem; border-left: 4px solid #2a6f97; padding: 0.2rem 0 0.2rem 1rem; margin: 1.4rem 0; }
.outcome p { margin: 0.4rem 0; }
figure { margin: 1.4rem 0; }
img, video { display: block; width: 100%; height: auto; border-radius: 4px; }
figcaption { color: #5a6268; font-size: 0.88rem; line-height: 1.45; margin-top: 0.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.95rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.7rem 0.4rem 0; text-align: left; border-bottom: 1px solid #e3e5e3; white-space: nowrap; }
th { font-size: 0.85rem; font-weight: 600; }
tr.here td { font-weight: bold; }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 0.88rem; }
pre { background: #f1f2ef; padding: 0.7rem 0.9rem; border-radius: 4px; overflow-x: auto; margin: 0.4rem 0 1rem; }
dt { font-weight: bold; margin-top: 0.8rem; }
dd { margin: 0.1rem 0 0; }
""".strip()


@dataclass(frozen=True)
class Pictures:
    """What the page shows, each a PNG."""

    policies: bytes
    learning: bytes
    strip: bytes


@dataclass(frozen=True)
class Shelf:
    """Where the rest of the story lies.

    Attributes:
        agent: folder of the trained agent, as commands name it.
        starts: files of starts, the same way: "train", "validation" and "test".
        demo: name of the world's video beside the page; None where there is none.
        film: name of the agent's one.
    """

    agent: Path
    starts: Mapping[str, Path]
    demo: str | None
    film: str


def page(findings: Findings, pictures: Pictures, shelf: Shelf) -> str:
    """The whole page as HTML."""
    body = "\n".join(
        [
            *_opening(findings),
            *_watching(findings, pictures, shelf),
            *_measured(findings, pictures),
            *_meaning(findings),
            *_honesty(findings),
            *_more(findings, shelf),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{TITLE}</title>\n<style>\n{STYLE}\n</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def verdict(findings: Findings, place: str) -> str:
    """What training was worth there, in one sentence that claims no more than the interval allows."""
    gain, count = findings.gain(place), findings.story.episodes
    change = f"a change of {percent(gain, signed=True)} percentage points".replace(" % ", " ")
    where = {WORLD: "In the generated world", GAME: "In the true game"}[place]
    shares = f"{percent(findings.share(BEFORE, place))} before, {percent(findings.share(AFTER, place))} after"
    if gain.low > 0:
        return f"{where}, training helped: {shares}, {change}."
    if gain.high < 0:
        return f"{where}, training did harm: {shares}, {change}."
    return f"{where}, {count} episodes show no certain effect of training: {shares}, {change}."


def _opening(findings: Findings) -> list[str]:
    minutes = findings.seconds.get("training", 0.0) / 60
    early = f"There was no time for all {findings.story.steps:,} steps that were asked for. " * findings.ended_early
    return [
        '<p class="kicker">WorldPlay2-Gym</p>',
        f"<h1>{TITLE}</h1>",
        f"<p>An agent learned to {escape(DEFAULT_TASK)}. It took its {findings.steps:,} steps in a world that a neural "
        f"network draws (<code>{escape(str(findings.story.world))}</code>), for {minutes:.1f} minutes on this "
        f"computer, and not one in the game that this world was made from. {early}Then it played the game.</p>",
        '<div class="outcome">',
        *(f"<p>{escape(verdict(findings, place))}</p>" for place in reversed(PLACES)),
        "</div>",
    ]


def _watching(findings: Findings, pictures: Pictures, shelf: Shelf) -> list[str]:
    lines = [
        "<h2>See it</h2>",
        _video(
            shelf.film,
            "The first test starts, not chosen by outcome: the agent before training above, after it below; in each "
            "pair the generated world on the left, the true game on the right, from the same place. A green frame "
            "means that the ball was reached, a red one that it was not.",
        ),
        _image(
            pictures.strip,
            "Moments of one start, before and after training, in the world and in the game",
            "The first of these starts as a strip, from its first picture on the left to its last.",
        ),
    ]
    if shelf.demo is not None:
        lines.append(
            _video(shelf.demo, "The world by itself: a script walks and turns, the lights go out, the view changes.")
        )
    return lines


def _measured(findings: Findings, pictures: Pictures) -> list[str]:
    return [
        "<h2>What came out</h2>",
        f"<p>Every policy played the same {findings.story.episodes} starts once in each place, for up to "
        f"{EPISODE_STEPS} steps each; their levels are of the split that no training here uses.</p>",
        _table(
            ["", "reached, world", "reached, game", "world − game", "same outcome", "steps, game"],
            [_row(findings, name) for name in findings.policies],
            list(findings.policies).index(AFTER),
        ),
        _image(
            pictures.policies,
            "Share of episodes that reach the ball by policy, in the generated world and in the true game",
            "Random acts are the floor. The scripted policy, which looks for red pixels, turns to them and walks, "
            "shows what can be reached.",
        ),
        _image(
            pictures.learning,
            "Share of episodes that reach the ball in the true game over the steps of training in the world",
            f"On the way, on {len(findings.curve[0][1].starts)} other starts. The agent learned in episodes of "
            f"{IMAGINED_STEPS} steps that the world goes on with from moments of recordings. Nothing was learned from "
            "the game: it only tells how much of what was learned in the world is true there.",
        ),
    ]


def _row(findings: Findings, name: str) -> list[str]:
    gap = findings.gap(name)
    return [
        name,
        *(percent(findings.share(name, place)) for place in PLACES),
        percent(gap[SUCCESS], signed=True),
        percent(gap["agreement"]),
        findings.policies[name][GAME].intervals(findings.story.seed)[LENGTH].text(1),
    ]


def _meaning(findings: Findings) -> list[str]:
    meanings = {
        "reached": "The share of episodes in which the agent came to the ball. In the game its engine says so. In the "
        "world nobody knows: a small network that was trained on recordings of the game looks at what the world "
        "generates and judges, and it errs.",
        "[low, high]": "A 95 % interval, from drawing the episodes again and again. Two policies whose intervals "
        "overlap widely may be equally good. Where no episode succeeds, or all do, the interval has no width, and "
        "still does not promise anything about further ones.",
        "world − game": "How much the world flatters, start by start. Above 0 it says that the ball was reached where "
        "the game does not; a policy may also have learned to please the judge.",
        "same outcome": "The share of starts with the same outcome in both places.",
        "steps, game": f"Mean length of an episode in the game; {EPISODE_STEPS} is as long as it may take, and one "
        "step is four of the game's tics, a ninth of a second.",
    }
    told = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in meanings.items())
    return ["<h2>What the numbers mean</h2>", f"<dl>\n{told}\n</dl>"]


def _honesty(findings: Findings) -> list[str]:
    total = sum(findings.seconds.values())
    rows = [[name, f"{seconds:.0f} s"] for name, seconds in findings.seconds.items()]
    return [
        "<h2>How much this shows</h2>",
        f"<p>Little by itself: it is one agent with one seed ({findings.story.seed}), trained for {findings.steps:,} "
        "steps, where agents that play well usually take hundreds of thousands or millions, and judged by "
        f"{findings.story.episodes} episodes. Another seed may end elsewhere. What it shows is the way: train in the "
        "world, measure in both, and believe the game.</p>",
        _table(["chapter", "time"], [*rows, ["all", f"{total:.0f} s"]], len(rows)),
        f"<p>The world calculated in {escape(findings.story.dtype)}; the agent learned by PPO from pictures alone.</p>",
    ]


def _more(findings: Findings, shelf: Shelf) -> list[str]:
    lines = ["<h2>Go on</h2>"]
    for what, words in commands(findings, shelf):
        lines += [f"<p>{escape(what)}</p>", f"<pre>{escape(shlex.join(words))}</pre>"]
    lines.append("<p>All numbers, episode by episode, are in <code>report.json</code> beside this page.</p>")
    return lines


def commands(findings: Findings, shelf: Shelf) -> list[tuple[str, list[str]]]:
    """What to do next, each with the words of a command."""
    story = findings.story
    world = ["--world", str(story.world), "--dtype", story.dtype]
    learn = ["--starts", str(shelf.starts["train"]), "--episode-steps", str(IMAGINED_STEPS)]
    test = ["--in", "both", "--starts", str(shelf.starts["test"])]
    longer = str(5 * story.steps)
    return [
        ("Train five times as long:", ["wp2", "story", "--out", "story-longer", *world, "--steps", longer]),
        (
            "Try another seed:",
            ["wp2", "story", "--out", "story-seed", *world, "--steps", str(story.steps), "--seed", str(story.seed + 1)],
        ),
        (
            "Train an agent without the story around it:",
            ["wp2", "train-agent", *learn, "--steps", longer, "--out", "runs/agent", *world],
        ),
        (
            "Play this agent again, in both places, and film it:",
            ["wp2", "evaluate", str(shelf.agent), *test, *world, "--video", "agent.mp4"],
        ),
        (
            f"Measure a policy of another kind; besides {RANDOM} and {SCRIPTED} there are broken ones:",
            ["wp2", "evaluate", "broken:noisy:0.3", *test, *world],
        ),
        ("Walk through the world yourself:", ["wp2", "play", "--world", str(story.world)]),
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], here: int) -> str:
    """A table whose row number ``here`` stands out."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = []
    for index, row in enumerate(rows):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f'<tr class="here">{cells}</tr>' if index == here else f"<tr>{cells}</tr>")
    return '<div class="scroll"><table>\n' + "\n".join([f"<tr>{head}</tr>", *lines]) + "\n</table></div>"


def _image(png: bytes, alt: str, caption: str) -> str:
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _video(name: str, caption: str) -> str:
    return (
        f'<figure><video controls muted loop preload="metadata" src="{escape(name)}">{escape(name)}</video>'
        f"<figcaption>{escape(caption)} (<code>{escape(name)}</code>)</figcaption></figure>"
    )
