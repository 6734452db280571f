"""The command itself: help for every word, mistakes answered with a sentence and examples, quiet interrupts."""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys

import pytest

from wp2env.cli import info
from wp2env.cli.main import COMMANDS, EXAMPLES, EXTRAS, _parser

NAMES = [" ".join(command.words) for command in COMMANDS]


def test_help_names_every_command_and_shows_examples(wp2):
    answer = wp2("--help")
    assert answer.code == 0 and "examples:" in answer.out
    for command in COMMANDS:
        assert f"    {command.words[0]} " in answer.out


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_help_of_a_command_shows_its_options_and_examples(wp2, command):
    answer = wp2(*command.words, "--help")
    name = " ".join(("wp2", *command.words))
    assert answer.code == 0
    assert f"usage: {name}" in answer.out and f"examples:\n  {name}" in answer.out
    assert command.examples.strip() in answer.out


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_every_example_parses(command):
    lines = [line.strip() for line in (*command.examples.splitlines(), *EXAMPLES.splitlines())]
    own = [line.split("   ")[0] for line in lines if line.startswith(f"wp2 {' '.join(command.words)}")]
    assert own
    for line in own:
        _parser(command).parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize("group", ["record", "train", "starts"])
def test_a_missing_or_wrong_world_is_answered_with_examples(wp2, group):
    assert "WORLD" in wp2(group).error
    answer = wp2(group, "chess")
    assert "'chess'" in answer.error and "doom" in answer.error
    assert f"examples:\n  wp2 {group} doom" in answer.err


def test_without_a_command_the_examples_are_shown(wp2):
    answer = wp2()
    assert "COMMAND" in answer.error and "wp2 demo" in answer.err
    assert "'dmeo'" in wp2("dmeo").error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train", "doom"], "--data, --out"),
        (["train", "doom", "--data", "d", "--out", "o"], "--stage --curriculum"),
        (["train", "doom", "--stage", "codec", "--curriculum"], "not allowed with"),
        (["train", "doom", "--curriculum", "--minutes", "codec=long"], "'codec=long'"),
        (["train", "doom", "--stage", "magic", "--data", "d", "--out", "o"], "'magic'"),
        (["record", "doom"], "--out, --clips"),
        (["bank"], "--data, --world"),
        (["export"], "run, out"),
        (["export", "run"], "out"),
        (["demo", "--zoom", "0"], "1 to 32"),
        (["demo", "--zoom", "33"], "1 to 32"),
        (["demo", "--seed", "-1"], "from 0 to"),
        (["demo", "--seed", "x"], "whole number"),
        (["demo", "--steps", "0"], "from 1 to"),
        (["demo", "--yaw", "nan"], "up to 180"),
        (["demo", "--pitch", "steep"], "'steep'"),
        (["play", "--zoom", "big"], "'big'"),
        (["bank", "--data", "d", "--world", "w", "--count", "1"], "from 2 to"),
        (["demo", "--wrold", "doom"], "--wrold"),
        (["plan"], "--preset"),
        (["generate"], "--input-json, --world"),
        (["convert", "s", "o"], "--variant"),
        (["convert", "s", "o", "--variant", "slow"], "'slow'"),
        (["plan", "--preset", "wan2.1-1.3b", "--gpus", "0"], "from 1 to"),
        (["plan", "--preset", "wan2.1-1.3b", "--inference", "--train", "navigation"], "not allowed with"),
    ],
)
def test_wrong_options_are_named_and_answered_with_examples(wp2, words, named):
    answer = wp2(*words)
    assert named in answer.error and "examples:" in answer.err and "--help` says more" in answer.err


def test_training_says_what_it_lacks(wp2, tmp_path):
    out = ["--out", tmp_path / "run"]
    train = ["train", "doom", "--stage", "codec", "--preset", "tiny", *out]
    assert "does not exist" in wp2(*train, "--data", tmp_path / "none", "--steps", "1").error
    assert "--minutes" in wp2(*train, "--data", tmp_path / "none").error


def test_recording_says_what_is_impossible(wp2, tmp_path):
    assert "clips is 0" in wp2("record", "doom", "--out", tmp_path / "clips", "--clips", "0").error


def test_an_error_of_the_system_names_the_file(wp2, monkeypatch):
    def full(settings):
        raise OSError(28, "No space left on device", "worlds/mine")

    monkeypatch.setattr(info, "main", full)
    assert wp2("info").error == "wp2 info: error: worlds/mine: No space left on device"


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_a_missing_package_is_named_with_its_extra(wp2, monkeypatch, package):
    def lacking(settings):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(info, "main", lacking)
    assert f'pip install "worldplay2-gym[{EXTRAS[package]}]"' in wp2("info").error


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_an_interrupt_ends_quietly(wp2, monkeypatch, command):
    module = importlib.import_module(command.module)
    required = {"record": ["--out", "o", "--clips", "1"], "export": ["run", "out"]}
    required["train doom"] = ["--stage", "codec", "--data", "d", "--out", "o"]
    required["train reward"] = ["--data", "d", "--validation", "v", "--out", "o"]
    required["bank"] = ["--data", "d", "--world", "w"]
    required["starts"] = ["--task", "explore", "--count", "1", "--split", "test", "--out", "o"]
    required["starts recordings"] = ["--task", "t", "--data", "d", "--count", "1", "--out", "o"]
    required["plan"] = ["--preset", "wan2.1-1.3b"]
    required["convert"] = ["s", "o", "--variant", "ar"]
    required["generate"] = ["--input-json", "j", "--world", "w"]
    required["import"] = ["folder", "--source", "s", "--out", "o"]

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    # Recording answers an interrupt itself, to say that the same command goes on.
    monkeypatch.setattr(module, "record" if command.words[0] == "record" else command.action, interrupted)
    options = required.get(" ".join(command.words), required.get(command.words[0], []))
    answer = wp2(*command.words, *options)
    assert answer.code == 130
    assert answer.err.startswith(f"wp2 {' '.join(command.words)}: interrupted") and answer.err.count("\n") == 1
    assert ("goes on from here" in answer.err) == (command.words[0] == "record")


def test_debug_shows_where_an_error_comes_from(wp2):
    with pytest.raises(FileNotFoundError):
        wp2("--debug", "info", "--world", "nowhere")
    assert "there is no world 'nowhere'" in wp2("info", "--world", "nowhere").error


def test_it_runs_as_a_module():
    answer = subprocess.run([sys.executable, "-m", "wp2env.cli", "--version"], capture_output=True, text=True)
    assert answer.returncode == 0 and answer.stdout.startswith("wp2 ")
