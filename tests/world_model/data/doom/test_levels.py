"""Generated levels and their captions; no engine needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from world_model.data.doom import art
from world_model.data.doom.actors import EXIT, HEALTH_PACK
from world_model.data.doom.levels import LIGHTS, SKY_LIGHT, centre, random_level
from world_model.data.doom.navigation import cell_of, shortest_path
from world_model.data.doom.recipe import LEVEL_SEEDS, Recipe
from world_model.data.doom.scene import Scene, listing
from world_model.data.doom.task_names import NAMED_GOAL

SEEDS = range(30)


def test_a_seed_is_a_level():
    assert random_level(5).grid.textmap() == random_level(5).grid.textmap()
    assert random_level(5).grid.textmap() != random_level(6).grid.textmap()


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_can_be_reached(seed):
    level = random_level(seed)
    start = cell_of(*centre(*level.free_cells()[0]))
    for cell in level.free_cells()[::7]:
        way = shortest_path(level, start, (int(cell[0]), int(cell[1])))
        assert way and way[0] == start and way[-1] == tuple(cell)
        assert all(level.free[row, column] for column, row in way)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, max(seeds.stop for seeds in LEVEL_SEEDS.values()) - 1))
def test_every_seed_gives_a_whole_level(seed):
    level = random_level(seed)
    assert level.grid.textmap() == random_level(seed).grid.textmap()
    cells = level.free_cells()
    start = tuple(int(v) for v in cells[0])
    reached, queue = {start}, [start]
    for column, row in queue:  # grows while it is read
        for near in ((column + 1, row), (column - 1, row), (column, row + 1), (column, row - 1)):
            if near not in reached and level.free[near[1], near[0]]:
                reached.add(near)
                queue.append(near)
    assert len(reached) == len(cells)
    assert (level.area_at[level.free] >= 0).all()  # whoever stands somewhere can be told where
    tids, tags = [placed.tid for placed in level.objects], [door.tag for door in level.doors]
    assert len(set(tids)) == len(tids) and len(set(tags)) == len(tags)
    for placed in level.objects:
        assert level.area_index(placed.x, placed.y) == placed.area
        assert placed.kind.name in Scene(level).caption(placed.x, placed.y)  # "boxes" holds "box" too
    assert [len(level.named(name)) for name in (NAMED_GOAL, EXIT, HEALTH_PACK)] == [1, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_goal_the_exit_and_the_packs_are_there_and_told(seed):
    level = random_level(seed)
    scene = Scene(level)
    for name in (NAMED_GOAL, EXIT, HEALTH_PACK):
        placed = level.named(name)
        assert len(placed) == (2 if name == HEALTH_PACK else 1)
        assert name in scene.caption(placed[0].x, placed[0].y)


def test_a_caption_has_one_fixed_wording():
    level = random_level(3)
    area = level.areas[0]
    text = Scene(level).caption(*centre(area.x0 + 1, area.y0 + 1))
    assert text == (
        "a courtyard with panelled orange walls and a plain blue floor, under a blue sky; "
        "it holds two health packs, a purple ball and a red box"
    )


def test_a_caption_follows_what_changes():
    level = random_level(3)
    scene, pack = Scene(level), level.named(HEALTH_PACK)[0]
    before = scene.caption(pack.x, pack.y)
    scene.remove(pack.tid)
    after = scene.caption(pack.x, pack.y)
    assert "two health packs" in before and "a health pack" in after
    scene.change(remark="in grey fog", light="dark")
    assert "dark, in grey fog" in scene.caption(pack.x, pack.y)


def test_objects_are_listed_in_order_and_counted():
    assert listing(["red box", "exit", "red box"]) == "an exit and two red boxes"
    assert listing(["orange ball"]) == "an orange ball"


def test_splits_share_no_level():
    ranges = sorted((seeds.start, seeds.stop) for seeds in LEVEL_SEEDS.values())
    assert all(before[1] <= after[0] for before, after in zip(ranges, ranges[1:], strict=False))
    for split, seeds in LEVEL_SEEDS.items():
        assert all(Recipe(0, split, 64, 64).level_seed(clip) in seeds for clip in range(40))


def test_no_place_is_too_dark_for_a_small_picture():
    assert min([*LIGHTS.values(), *SKY_LIGHT.values()]) >= 144


def test_walls_are_low_frequency_and_made_of_palette_colours():
    palette = {tuple(int(code[i : i + 2], 16) for i in (0, 2, 4)) for ramp in art.RAMPS.values() for code in ramp}
    frequency = np.maximum(*np.meshgrid(*[np.abs(np.fft.fftfreq(art.TEXTURE) * art.TEXTURE)] * 2))
    for pattern in art.PATTERNS:
        for colour in art.COLOURS:
            image = art.wall(pattern, colour)
            assert {tuple(pixel) for pixel in image.reshape(-1, 3).tolist()} <= palette
            spectrum = np.abs(np.fft.fft2(image - image.mean(axis=(0, 1)), axes=(0, 1))) ** 2
            assert spectrum[frequency > 16].sum() <= 0.1 * spectrum.sum()
