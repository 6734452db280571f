"""Ray workers make the recording that one process makes, also when some of them are killed."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import psutil
import pytest

from agents.record.crew import TRIES, Crew
from agents.record.recording import Broken, record

ray = pytest.importorskip("ray")
EPISODES = 6


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Ray on this machine, for all tests of this file."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


class Unlucky(Crew):
    """Kills the first workers amid the waves that they were given."""

    def __init__(self, plan, licence, workers, kills):
        super().__init__(plan, licence, workers)
        self.kills = kills

    def _order(self, actor, wave):
        super()._order(actor, wave)
        if self.kills:
            self.kills -= 1
            os.kill(self._at_play(), signal.SIGKILL)

    def _at_play(self) -> int:
        """The process id of the only worker that has something to do, once it does it."""
        while True:
            children = psutil.Process().children(recursive=True)
            playing = [child.pid for child in children if "_Worker.play" in " ".join(child.cmdline())]
            if playing:
                return playing[0]
            time.sleep(0.001)


def test_killed_workers_cost_nothing_but_time(plan, tmp_path, tree):
    run = partial(record, plan(steps=20), episodes=EPISODES)
    run(tmp_path / "lone")
    with pytest.raises(
        Broken, match="died 3 times over the episodes 0 to 1; .* 0 of 6 episodes are done, and the same"
    ):
        run(tmp_path / "crew", hire=partial(Unlucky, workers=1, kills=TRIES))
    run(tmp_path / "crew", hire=partial(Unlucky, workers=2, kills=1))
    assert tree(tmp_path / "crew") == tree(tmp_path / "lone")


def test_what_is_wrong_with_a_plan_is_said_as_it_is(plan, tmp_path):
    with pytest.raises(ValueError, match="the task 'fly' is not known; name one of"):
        record(plan(task="fly"), tmp_path / "crew", episodes=2, hire=partial(Crew, workers=1))
