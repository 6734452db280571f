"""``wp2`` with the commands about agents: they stand beside those of the floors below, which know nothing of them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agents.cli import AGENT_COMMANDS, COMMANDS, main
from wp2env.cli.main import COMMANDS as WORLD_COMMANDS
from wp2env.cli.main import _parser

NAMES = [" ".join(command.words) for command in AGENT_COMMANDS]


def test_all_commands_are_there_once():
    words = [command.words for command in COMMANDS]
    assert len(set(words)) == len(words) == len(WORLD_COMMANDS) + len(AGENT_COMMANDS)


def test_the_installed_command_is_the_one_with_all_commands():
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert 'wp2 = "agents.cli:main"' in project


@pytest.mark.parametrize("command", AGENT_COMMANDS, ids=NAMES)
def test_help_of_a_command_shows_its_options_and_examples(wp2, command):
    answer = wp2(*command.words, "--help")
    name = " ".join(("wp2", *command.words))
    assert answer.code == 0
    assert f"usage: {name}" in answer.out and f"examples:\n  {name}" in answer.out


@pytest.mark.parametrize("command", AGENT_COMMANDS, ids=NAMES)
def test_every_example_parses(command):
    lines = [line.strip() for line in command.examples.splitlines()]
    own = [line for line in lines if line.startswith(f"wp2 {command.words[0]} ")]
    assert own
    for line in own:
        _parser(command, COMMANDS).parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["evaluate"], "POLICY"),
        (["evaluate", "random", "--in", "moon"], "'moon'"),
        (["evaluate", "random", "--episodes", "0"], "from 1 to"),
        (["evaluate", "random", "--envs", "x"], "whole number"),
        (["train-agent"], "--steps, --out"),
        (["train-agent", "--steps", "10", "--out", "o", "--algo", "magic"], "'magic'"),
        (["clone"], "--data, --out"),
    ],
)
def test_wrong_options_are_named_and_answered_with_examples(wp2, words, named):
    answer = wp2(*words)
    assert named in answer.error and "examples:" in answer.err


def test_the_commands_of_the_floors_below_work(wp2):
    assert "there is no world 'nowhere'" in wp2("info", "--world", "nowhere").error


def test_a_mistyped_command_is_answered_with_all_of_them(wp2):
    answer = wp2("evalaute")
    assert "'evalaute'" in answer.error and "train-agent" in answer.error and "demo" in answer.error


def test_it_runs_as_a_module_and_imports_no_command(tmp_path):
    code = "import sys, agents.cli; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"stable_baselines3", "torch", "vizdoom"} & set(answer.stdout.split())
    answer = subprocess.run([sys.executable, "-m", "agents.cli", "--version"], capture_output=True, text=True)
    assert answer.returncode == 0 and answer.stdout.startswith("wp2 ")


def test_main_returns_the_exit_code(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out.startswith("wp2 ")
