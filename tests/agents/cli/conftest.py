"""Runs ``wp2`` in this process."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from agents.cli import main


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one sentence of a failed command, which has exit code 2 and shows no traceback."""
        assert self.code == 2 and not self.out and "Traceback" not in self.err
        # Bars of progress, which are empty then, stand on lines of their own.
        sentence, *more = [line for line in self.err.strip().split("\n") if "0%|" not in line]
        assert sentence.startswith("wp2") and ": error: " in sentence
        assert not more or more[1] == "examples:"
        return sentence


@pytest.fixture
def wp2(capsys):
    """Runs the command with the given words."""

    def run(*words) -> Answer:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        return Answer(code, *capsys.readouterr())

    return run
