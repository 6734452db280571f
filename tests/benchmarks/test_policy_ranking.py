"""The ranking of climbers on ladders that stand in for the true game and the worlds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agents.crippled_worlds import ShuffledActions
from agents.evaluate import Evaluation
from agents.ranking import PAIRS, REGRET, SPEARMAN
from benchmarks import arena, policy_ranking, report
from benchmarks.arena import SHUFFLED, STILL, Arena

CHANCES = [str(chance) for chance in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)]


@pytest.fixture
def command(small_world, tmp_path, monkeypatch, ladder, climber):
    """Runs the command; in the world a ladder has one rung less."""

    def make(self, place, temperature=1.0, world=None):
        return ladder(self.envs, 4 if place == "game" else 3)

    def controls(self):
        return {SHUFFLED: lambda: ShuffledActions(self.make("world"))}

    monkeypatch.setattr(Arena, "make", make)
    monkeypatch.setattr(Arena, "controls", controls)
    monkeypatch.setattr(arena, "load_policy", lambda text, num_envs, seed: climber(float(text), num_envs, seed))

    def run(*words):
        common = ["--world", str(small_world), "--starts", str(small_world / "test.safetensors")]
        settings = policy_ranking.parse([*common, "--out", str(tmp_path / "out"), "--episodes", "8", *words])
        return report.run(policy_ranking.main, settings)

    return run


def test_the_command_ranks_and_reports(command, tmp_path, capsys):
    target, plot = tmp_path / "ranking.json", tmp_path / "ranking.png"
    words = ["--policies", *CHANCES, "--steps", "8", "4", "--json", str(target), "--plot", str(plot)]
    assert command(*words) == 0
    said = capsys.readouterr().out
    assert "Spearman rho of success, 8 steps" in said and "a claim takes 12 policies" in said
    assert f"{SHUFFLED}: " in said
    results = json.loads(target.read_text())["results"]
    assert set(results["agreement"]) == {f"{m}, {s} steps" for m in ("success", "return") for s in (4, 8)}
    found = results["agreement"]["success, 8 steps"]
    assert set(found) == {"world", SHUFFLED, policy_ranking.OTHER, policy_ranking.FLOOR}
    assert found["world"][SPEARMAN]["mean"] > 0.8 > abs(found[SHUFFLED][SPEARMAN]["mean"])
    assert found["world"]["signed bias"]["mean"] > 0 == found[policy_ranking.FLOOR][SPEARMAN]["mean"]
    assert found[policy_ranking.OTHER][SPEARMAN]["mean"] > 0.8
    row = results["policies"]["0.8"]
    assert row["success, game"]["mean"] + row["success, world - game"]["mean"] == row["success, world"]["mean"]
    values = [row["success, game"]["mean"] for row in results["policies"].values()]
    assert values == sorted(values, reverse=True) and plot.stat().st_size > 1000


def test_the_same_command_again_says_the_same(command, tmp_path, capsys, monkeypatch):
    words = ["--policies", *CHANCES[:3], "--steps", "4"]
    assert command(*words) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(Arena, "make", None)  # everything is kept
    assert command(*words) == 0
    assert capsys.readouterr().out.rsplit("\n", 2)[0] == first.rsplit("\n", 2)[0]


def test_without_as_many_other_starts_there_is_no_ceiling(command, capsys):
    assert command("--policies", "0.1", "0.9", "--steps", "4", "--episodes", "9") == 0
    said = capsys.readouterr().out
    assert "the ceiling is left out: it takes 18 starts" in said and policy_ranking.OTHER not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policies", "0.1"], "--policies are ['0.1']; a ranking takes at least 2"),
        (["--policies", "0.1", "0.1"], "give each of them once"),
        (["--steps", "0"], "--steps is 0; give at least 1"),
        (["--budgets", "-1"], "--budgets are [-1]; give steps from 0 on"),
        (["--train-seeds", "1", "1"], "--train-seeds are [1, 1]; give each of them once"),
        (["--episodes", "17"], "--episodes is 17 and"),
        (["--world", "nowhere"], "there is no world 'nowhere'"),
    ],
)
def test_impossible_wishes_end_in_one_sentence(command, capsys, words, message):
    assert command(*words) == 2
    assert message in capsys.readouterr().err


def test_a_control_that_ranks_is_called_out():
    def found(low, high):
        return {SPEARMAN: report.Interval((low + high) / 2, low, high, 12)}

    lines = policy_ranking.verdict({"world": found(0.8, 1), SHUFFLED: found(-1, 0.5), STILL: found(0.1, 0.9)}, 12, "x")
    assert "a claim takes" not in lines[0] and [line.strip().split(": ")[0] for line in lines[1:]] == [STILL, SHUFFLED]
    assert lines[1].endswith("BUT it must be near 0") and lines[2].endswith("as it must")


def test_a_task_without_success_is_ranked_by_return():
    def played(returns):
        starts = np.arange(3)
        return {("a", 4): Evaluation(starts, starts, np.full((3, 1), returns), None),
                ("b", 4): Evaluation(starts, starts, np.full((3, 1), 1.0), None)}  # fmt: skip

    both = {"game": played(0.0), "world": played(2.0)}
    assert set(policy_ranking.values(both, 4, 0)["b"]) == {"return, game", "return, world", "return, world - game"}
    found = policy_ranking.compare(both, "return", 4, 0)["world"]
    assert (found[SPEARMAN].mean, found[REGRET].mean, found[PAIRS].mean) == (-1, 1, 0)


def test_the_quick_run_has_enough_policies_of_different_kinds(monkeypatch, tmp_path):
    settings = policy_ranking.parse(["--quick", "--out", str(tmp_path)])
    policy_ranking.settle(settings)
    assert settings.out == tmp_path / "quick"
    monkeypatch.setattr(policy_ranking, "trained", lambda s, size: {f"PPO {b}": ("x", 0) for b in s.budgets})
    monkeypatch.setattr(policy_ranking, "clones", lambda s, size: {"clone": ("y", 0)})
    assert len(policy_ranking.contestants(settings, 64)) >= policy_ranking.FEWEST
