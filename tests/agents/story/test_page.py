"""The page: complete without a network, honest about chance, and safe from what a name may contain."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agents.cli import COMMANDS
from agents.places import GAME, WORLD
from agents.story import plots
from agents.story.page import Pictures, Shelf, commands, page, verdict
from wp2env.cli.main import _chosen, _parser

PNG = b"\x89PNG\r\n\x1a\n"
STARTS = {name: Path("my story") / f"{name}.safetensors" for name in ("train", "validation", "test")}
SHELF = Shelf(Path("my story/agent"), STARTS, "demo.mp4", "before-after.mp4")
VOID = {"meta", "img"}


class Reader(HTMLParser):
    """Collects the elements of a page, and sees that they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def pictures():
    return Pictures(PNG + b"policies", PNG + b"learning", PNG + b"strip")


def test_it_holds_its_pictures_and_asks_for_nothing_but_its_videos(make_findings, pictures):
    text = page(make_findings(), pictures, SHELF)
    read = Reader(text)
    sources = [image["src"].removeprefix("data:image/png;base64,") for image in read.all("img")]
    assert {base64.b64decode(source) for source in sources} == {pictures.policies, pictures.learning, pictures.strip}
    assert all(image["alt"] for image in read.all("img"))
    assert [video["src"] for video in read.all("video")] == ["before-after.mp4", "demo.mp4"]
    assert not read.all("script") and not read.all("link") and "http" not in text and "url(" not in text


def test_without_a_video_of_the_world_none_is_shown(make_findings, pictures):
    text = page(make_findings(), pictures, replace(SHELF, demo=None))
    assert [video["src"] for video in Reader(text).all("video")] == ["before-after.mp4"]


def test_names_cannot_change_the_page(make_findings, pictures):
    name = "a<script>alert('x')</script>&\"b"
    text = page(make_findings(name), pictures, SHELF)
    assert not Reader(text).all("script") and "<script" not in text and "&lt;script&gt;" in text
    assert name in unescape(text)


def test_all_numbers_are_there_with_their_intervals(make_findings, pictures):
    text = page(make_findings(), pictures, SHELF)
    for name in ("random", "before training", "after training", "scripted"):
        assert f"<td>{name}</td>" in text
    row = re.search(r'<tr class="here"><td>after training</td>(.*?)</tr>', text).group(1)
    cells = re.findall("<td>(.*?)</td>", row)
    assert [cell.split(" [")[0] for cell in cells] == ["90 %", "80 %", "+10 %", "90 %", "13.6"]
    assert all("[" in cell for cell in cells)
    assert "1,024 steps" in text and "1.5 minutes" in text and "<td>training</td><td>90 s</td>" in text


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(1, 8, "training helped"), (8, 1, "training did harm"), (4, 5, "10 episodes show no certain effect")],
)
def test_the_verdict_claims_no_more_than_the_interval_allows(make_findings, before, after, said):
    found = make_findings(before=before, after=after)
    assert said in verdict(found, GAME) and verdict(found, GAME).startswith("In the true game")
    assert f"{10 * before} % [" in verdict(found, GAME) and f"{10 * after + 10} % [" in verdict(found, WORLD)


def test_every_command_that_it_names_can_be_given(make_findings, pictures):
    named = commands(make_findings(), SHELF)
    assert {words[1] for _, words in named} == {"story", "train-agent", "evaluate", "play"}
    for _, words in named:
        _parser(_chosen(words[1:], COMMANDS), COMMANDS).parse_args(words[1:])
    assert "&#x27;my story/test.safetensors&#x27;" in page(make_findings(), pictures, SHELF)


def test_the_plots_are_pictures_that_show_the_numbers(make_findings):
    found = make_findings()
    worse = replace(make_findings(after=2), curve=found.curve[:2])
    for plot in (plots.policies, plots.learning):
        assert plot(found).startswith(PNG) and plot(found) != plot(worse)
