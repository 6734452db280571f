"""Running episodes of the true game: what it can be asked for, and what it knows beside its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wp2env.episodes import Episodes, NewEpisode
from wp2env.options import StartRequest
from wp2env.tasks import RewardOut, TaskContext


class GameEpisodes(Episodes):
    """Episodes whose stream is a `wp2env.game_stream.GameStream`."""

    def begin(
        self, chosen: Sequence[int], requests: Mapping[int, StartRequest], seeds: Mapping[int, int | None]
    ) -> None:
        """As `Episodes.begin`.

        Raises:
            ValueError: for a request that only a generated world can meet; nothing has changed then.
        """
        for slot in chosen:
            if not requests[slot].needs_bank:
                raise ValueError("the true game cannot begin from pictures or texts; choose a start by start_index")
            if requests[slot].caption:
                raise ValueError(
                    "the true game says itself what there is to see; leave options['caption'] out, and let an event "
                    "begin by set_event after the reset"
                )
        super().begin(chosen, requests, seeds)

    def advance(self, rows: np.ndarray, events: Sequence[str], active: np.ndarray) -> RewardOut:
        """As `Episodes.advance`; an episode is over, too, when the game itself is."""
        # A slot that waits for its reset ignores its action, the event in it too.
        events = [text if on else "" for text, on in zip(events, active, strict=True)]
        out = super().advance(rows, events, active)
        return replace(out, terminated=np.asarray(out.terminated, dtype=bool) | self.stream.ended)

    def set_caption(self, fields: Mapping[str, str], chosen: Sequence[int]) -> None:
        """Announce an event in the chosen slots.

        Raises:
            ValueError: for another field, or an event that the game cannot let happen; nothing has changed then.
        """
        fixed = next((name for name in fields if name != "event"), None)
        if fixed is not None:
            raise ValueError(f"the true game says itself what the {fixed} is; set the event only")
        if fields:
            self.stream.announce(dict.fromkeys(chosen, fields["event"]))

    def close(self) -> None:
        """End the engines; the next reset starts them again."""
        if self._stream is not None:
            self._stream.close()
        super().close()

    def _bind(self) -> None:
        """The engine judges, not the task: there is no world to know."""

    def _begin_stream(self, chosen: Sequence[int], begun: Sequence[NewEpisode]) -> Any:
        return self.stream.reset(chosen, [slot.start for slot in begun], [slot.world_seed for slot in begun])

    def _announce(self, events: Sequence[str], views: np.ndarray) -> None:
        self.stream.announce({slot: text for slot, text in enumerate(events) if text})

    def _context(self, rows: np.ndarray, previous: np.ndarray, active: np.ndarray) -> TaskContext:
        return replace(super()._context(rows, previous, active), truth=self.stream.truth)
