"""The live game: signs, views, jumps, rewards, events."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("vizdoom", reason="the Doom engine is an optional extra")

from world_model.controls import FIRST_PERSON, NOTHING, THIRD_PERSON, FrameAction
from world_model.data.doom.actors import CHARACTERS, HEALTH_PACK, OBJECTS, figure_actor
from world_model.data.doom.engine import Look, Start
from world_model.data.doom.events import BUILDERS, CATEGORIES, KINDS, Event
from world_model.data.doom.game import DoomGame
from world_model.data.doom.levels import centre, random_level
from world_model.data.doom.motion import ELEVATION, HEADING, path
from world_model.data.doom.navigation import fits
from world_model.data.doom.policies import SafeWalker, TaskWalker
from world_model.data.doom.recipe import Recipe
from world_model.data.doom.revisits import ThereAndBack
from world_model.data.doom.starts import choose_start
from world_model.data.doom.studio import open_studio
from world_model.data.doom.take import VISIBLE_SHARE, change
from world_model.data.doom.tasks import COLLECT_HEALTH, REACH_EXIT, TOUCH, WALK_TO_GOAL, distance

LEVELS = 24
OPEN_LEVEL = 3  # its first area is an open courtyard


@pytest.fixture(scope="module")
def game():
    game = DoomGame([random_level(seed) for seed in range(LEVELS)], size=64)
    yield game
    game.close()


def open_start(game: DoomGame, heading: float = 90) -> Start:
    area = game.levels[OPEN_LEVEL].areas[0]
    return Start(*centre((area.x0 + area.x1) // 2, (area.y0 + area.y1) // 2), heading, seed=1)


def play(game: DoomGame, *actions: FrameAction):
    return [game.step(action.row()) for action in actions]


def changed(frame: np.ndarray, other: np.ndarray) -> float:
    return float((np.abs(frame.astype(int) - other).max(axis=-1) > 12).mean())


def test_yaw_right_is_positive_and_lowers_dooms_angle(game):
    first = game.reset(OPEN_LEVEL, open_start(game), Look())
    (step,) = play(game, FrameAction(yaw=10))
    assert step.pose[HEADING] - first.pose[HEADING] == pytest.approx(-step.action[1], abs=1e-3)
    assert step.action[1] == pytest.approx(10, abs=0.01)


def test_pitch_up_is_positive_and_stops_at_the_limit(game):
    game.reset(OPEN_LEVEL, open_start(game), Look())
    up, more, most = play(game, FrameAction(pitch=5), FrameAction(pitch=90), FrameAction(pitch=5))
    assert up.pose[ELEVATION] == pytest.approx(5, abs=0.01) == pytest.approx(up.action[0], abs=0.01)
    assert more.pose[ELEVATION] == pytest.approx(28, abs=0.02) and more.action[0] == pytest.approx(23, abs=0.02)
    assert abs(most.action[0]) < 0.02


@pytest.mark.parametrize("heading", [0.0, 90.0, 215.0])
def test_moves_are_exact_and_without_inertia(game, heading):
    game.reset(OPEN_LEVEL, open_start(game, heading), Look())
    for action in (
        FrameAction(longitudinal=1),
        FrameAction(lateral=1),
        FrameAction(longitudinal=-1, yaw=15),
        FrameAction(lateral=-1, yaw=-20),
        FrameAction(),
    ):
        before = game.pose
        (step,) = play(game, action)
        np.testing.assert_allclose(step.pose[:2], path(before, step.action)[-1], atol=0.05)


def test_a_jump_leaves_the_ground_once(game):
    game.reset(OPEN_LEVEL, open_start(game), Look())
    steps = play(game, *[FrameAction(jump=1)] * 3, *[FrameAction()] * 4)
    assert [step.action[5] for step in steps[:3]] == [1, 0, 0]
    assert max(step.pose[2] for step in steps) > 20 and steps[-1].pose[2] == 0


def test_the_view_switches_at_any_frame_and_back(game):
    look = Look("Marine", "red")
    first = game.reset(OPEN_LEVEL, open_start(game), look, FIRST_PERSON)
    behind, eyes = play(game, FrameAction(perspective=THIRD_PERSON), FrameAction(perspective=FIRST_PERSON))
    assert first.caption.character == eyes.caption.character == NOTHING
    assert behind.caption.character == "a space marine in red armour"
    assert changed(first.frame, behind.frame) > 0.1 and changed(first.frame, eyes.frame) < 0.01
    np.testing.assert_array_equal(behind.pose, first.pose)
    again = game.reset(OPEN_LEVEL, open_start(game), look, THIRD_PERSON)
    assert again.caption.character != NOTHING and changed(again.frame, behind.frame) < 0.01


def test_replaying_the_same_rows_gives_the_same_frames(game):
    rng = np.random.default_rng(0)
    rows = [FrameAction(yaw=float(rng.normal(0, 9)), longitudinal=1, jump=int(t == 5)).row() for t in range(20)]
    start = choose_start(game.levels[0], rng)
    runs = []
    for level in (0, 7, 0):
        game.reset(level, start, Look(weapon="shotgun"))
        runs.append(np.stack([game.step(row).frame for row in rows]))
    np.testing.assert_array_equal(runs[0], runs[2])


def test_coming_back_to_a_step_brings_everything_back(game):
    level, rng = 0, np.random.default_rng(0)
    start = choose_start(game.levels[level], rng)
    steps = [game.reset(level, start, Look())]
    policy = TaskWalker(rng, COLLECT_HEALTH)
    while steps[-1].packs_taken == 0:
        steps.append(game.step(policy(game)))
    steps += play(game, FrameAction(yaw=5, jump=1), *[FrameAction(yaw=3, longitudinal=1, jump=1)] * 3)
    rows = [FrameAction(pitch=6, jump=1).row(), *[FrameAction(longitudinal=1, jump=1).row()] * 7]
    pickup, ahead = sum(step.packs_taken for step in steps), [game.step(row) for row in rows]
    scene, open_tasks = game.scene.objects, set(game.open_tasks)
    assert pickup and len(steps) < 200
    game.reset(level, start, Look())
    game.replay(steps)
    for step, again in zip(ahead, (game.step(row) for row in rows), strict=True):
        np.testing.assert_array_equal(step.frame, again.frame)
        np.testing.assert_array_equal(step.pose, again.pose)
        np.testing.assert_array_equal(step.action, again.action)
        assert (step.rewards, step.terminated, step.caption) == (again.rewards, again.terminated, again.caption)
    assert game.scene.objects == scene and set(game.open_tasks) == open_tasks


def test_captions_and_engine_agree_on_what_is_there(game, monkeypatch):
    """Clips are recorded in an engine that also lists its objects, and both lists are compared frame by frame."""
    usual, compared = DoomGame._step, []

    def step_and_compare(self, *values, **named):
        step = usual(self, *values, **named)
        if self.event is None:
            kinds = {kind.actor for kind in OBJECTS.values()} | {figure_actor(character) for character in CHARACTERS}
            listed = [(thing.name.removeprefix("Dead"), thing) for thing in self.engine.game.get_state().objects]
            there = sorted((name, round(t.position_x), round(t.position_y)) for name, t in listed if name in kinds)
            assert there == sorted((p.kind.actor, round(p.x), round(p.y)) for p in self.scene.objects)
            compared.append(len(there))
        return step

    import vizdoom

    init = vizdoom.DoomGame.init
    monkeypatch.setattr(vizdoom.DoomGame, "init", lambda self: (self.set_objects_info_enabled(True), init(self))[1])
    monkeypatch.setattr(DoomGame, "_step", step_and_compare)
    clips = list(range(48))
    with open_studio(Recipe(0, "test", 64, 64), clips) as studio:
        recorded = [studio.record(clip) for clip in clips]
    assert len(compared) > 48 * 64 * 0.7
    for clip in recorded:
        assert clip.rewards[COLLECT_HEALTH.name].sum() <= 2
        assert all(ended.sum() <= 1 for ended in clip.terminated.values())
    packs = [clip for clip in recorded if clip.meta["event"] and clip.rewards[COLLECT_HEALTH.name].any()]
    assert packs  # among them are pickups before an event


@pytest.mark.parametrize("view", [FIRST_PERSON, THIRD_PERSON])
@pytest.mark.parametrize("level", range(6))
def test_there_and_back_sees_every_place_again(game, level, view):
    rng = np.random.default_rng(level)
    first = game.reset(level, choose_start(game.levels[level], rng), Look("Beast"), view)
    policy, frames = ThereAndBack(rng, 48), 48
    legs = [policy.still_to_go]
    poses, blocked = [first.pose], 0
    for _ in range(frames):
        row = policy(game).copy()
        row[4] = view
        poses.append(game.step(row).pose)
        blocked += not fits(game.level, *poses[-1][:2], margin=0)
    for t in range(2 * legs[0] + 1):
        twin = poses[2 * legs[0] - t]
        np.testing.assert_allclose(poses[t][:3], twin[:3], atol=0.1)
        np.testing.assert_allclose(np.cos(np.radians(poses[t][3:] - twin[3:])), 1, atol=1e-6)
    assert max(np.hypot(*(pose - poses[0])[:2]) for pose in poses) > 48 and not blocked


def test_the_safe_walker_never_touches_anything(game):
    rng = np.random.default_rng(1)
    game.reset(5, choose_start(game.levels[5], rng), Look())
    walker = SafeWalker(rng)
    for _ in range(60):
        before = game.pose
        step = game.step(walker(game))
        np.testing.assert_allclose(step.pose[:2], path(before, step.action)[-1], atol=0.05)


@pytest.mark.parametrize("task", [WALK_TO_GOAL, REACH_EXIT])
@pytest.mark.parametrize("level", [0, 4])
def test_reaching_pays_once_and_in_the_step_that_reaches(game, task, level):
    rng = np.random.default_rng(2)
    first = game.reset(level, choose_start(game.levels[level], rng), Look())
    goal = task.targets(game.scene)[0]
    policy, steps = TaskWalker(rng, task), [first]
    for _ in range(160):
        steps.append(game.step(policy(game)))
    rewards = np.array([step.rewards[task.name] for step in steps])
    ends = np.array([step.terminated[task.name] for step in steps])
    assert rewards.sum() == ends.sum() == 1 and rewards.argmax() == ends.argmax()
    reached = int(ends.argmax())
    assert distance(steps[reached].pose, goal) <= task.within < distance(steps[reached - 1].pose, goal)


def test_health_packs_pay_one_each_and_leave_the_caption(game):
    rng = np.random.default_rng(0)
    steps = [game.reset(0, choose_start(game.levels[0], rng), Look())]
    policy = TaskWalker(rng, COLLECT_HEALTH)
    for _ in range(200):
        steps.append(game.step(policy(game)))
    rewards = np.array([step.rewards[COLLECT_HEALTH.name] for step in steps])
    ends = np.array([step.terminated[COLLECT_HEALTH.name] for step in steps])
    assert rewards.sum() == 2 and ends.sum() == 1 and ends.argmax() == np.nonzero(rewards)[0][-1]
    assert not [placed for placed in game.scene.objects if placed.kind.name == HEALTH_PACK]
    picked = int(rewards.argmax())
    told = steps[picked - 1].caption.scene, steps[picked].caption.scene
    assert HEALTH_PACK in told[0] and told[0] != told[1]


def test_nothing_is_reached_at_the_start(game):
    for level in range(LEVELS):
        start = choose_start(game.levels[level], np.random.default_rng(level))
        goal = game.levels[level].named(WALK_TO_GOAL.target)[0]
        assert distance((start.x, start.y), goal) > TOUCH


def place_for(game: DoomGame, kind: str, view: int):
    """A level, start and event in which this kind can happen."""
    for level in range(LEVELS):
        rng = np.random.default_rng(level)
        start = choose_start(game.levels[level], rng)
        game.reset(level, start, Look("Marine", "red"), view)
        event = BUILDERS[kind](game, rng)
        if event:
            yield level, start, event


@pytest.mark.parametrize("kind", BUILDERS)
def test_every_event_can_be_seen_told_and_ends(game, kind):
    view = THIRD_PERSON if kind == "body_changes" else FIRST_PERSON
    idle = FrameAction(perspective=view)
    for level, start, event in place_for(game, kind, view):
        assert event.caption and event.kind == kind and kind in KINDS[event.category]
        game.reset(level, start, Look("Marine", "red"), view)
        twin = play(game, *[idle] * (event.frames + 2))
        game.reset(level, start, Look("Marine", "red"), view)
        quiet = play(game, idle, idle)
        game.reset(level, start, Look("Marine", "red"), view)
        game.begin(event)
        shown = play(game, *[idle] * (event.frames + 2))
        assert quiet[0].caption.event == NOTHING
        told = [step.caption.event for step in shown]
        assert told == [event.caption] * event.frames + [NOTHING] * 2
        if change(twin, shown) >= VISIBLE_SHARE[event.category]:
            return
    pytest.fail(f"{kind} was never visible")


def test_an_event_that_cannot_be_seen_is_not_kept(monkeypatch):
    for kind in BUILDERS:
        event = Event(kind, CATEGORIES[0], "nothing that shows", 8, {})
        monkeypatch.setitem(BUILDERS, kind, lambda game, rng, event=event: event)
    with open_studio(Recipe(0, "test", 48, 64), list(range(12))) as studio:
        unseen = [studio.record(clip) for clip in range(12)]
    assert not any(clip.meta["event"] for clip in unseen)
    assert all(caption.event == NOTHING for clip in unseen for _, caption in clip.captions)


def test_there_are_twenty_kinds_in_three_categories():
    assert len(BUILDERS) == 20 and len(CATEGORIES) == 3 and all(len(KINDS[category]) >= 5 for category in CATEGORIES)


def test_what_has_vanished_cannot_be_reached(game):
    wanted = f"the {WALK_TO_GOAL.target} vanishes"
    places = place_for(game, "object_vanishes", FIRST_PERSON)
    level, start, event = next(place for place in places if place[2].caption == wanted)
    game.reset(level, start, Look())
    (goal,) = WALK_TO_GOAL.targets(game.scene)
    game.begin(event)
    steps = [game.step(FrameAction().row())]
    assert WALK_TO_GOAL.judge(game.scene, (goal.x, goal.y), 0) == (0.0, False)
    assert WALK_TO_GOAL.target in steps[-1].caption.scene
    steps = play(game, *[FrameAction()] * event.frames)
    assert steps[-1].caption.event == NOTHING and WALK_TO_GOAL.target not in steps[-1].caption.scene


def test_an_event_that_lasts_is_told_by_the_scene_afterwards(game):
    level, start, event = next(place_for(game, "object_appears", FIRST_PERSON))
    game.reset(level, start, Look())
    game.begin(event)
    steps = play(game, *[FrameAction()] * (event.frames + 1))
    name = event.caption.removesuffix(" appears").split(" ", 1)[1]
    assert name in steps[-1].caption.scene and len(steps[-1].caption.scene) >= len(steps[0].caption.scene)


def test_after_the_end_of_a_game_the_last_real_frame_stays(game):
    engine = game.engine
    game.reset(0, choose_start(game.levels[0], np.random.default_rng(0)), Look())
    before = game.step(FrameAction(longitudinal=1).row())
    engine.command("special Exit_Normal 0")
    ended = [game.step(FrameAction().row()) for _ in range(20)]
    assert ended[-1].ended and not before.ended
    assert ended[-1].frame.mean() > 10 and ended[-1].pose is not None
    assert game.reset(1, choose_start(game.levels[1], np.random.default_rng(0)), Look()).ended is False


def test_commands_that_the_console_would_drop_are_refused(game):
    with pytest.raises(ValueError, match="127"):
        game.engine.command("x" * 200)
    with pytest.raises(ValueError, match="0 characters"):
        game.engine.command("")


def test_an_impossible_size_is_refused():
    with pytest.raises(ValueError, match=r"size 1000 .*480"):
        DoomGame([random_level(0)], size=1000)
