"""Stopping in an orderly way: a signal asks, and whoever trains stops when its work is whole."""

from __future__ import annotations

import signal
from typing import Any


class Interruption:
    """Turns SIGINT and SIGTERM into a request, ``asked``, to stop after the step in hand."""

    asked = False

    def __enter__(self) -> Interruption:
        self.asked = False
        self.previous: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.previous[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread: the caller's own handlers stay in charge
                pass
        return self

    def _ask(self, *_: object) -> None:
        self.asked = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
