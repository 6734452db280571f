"""Sizes that follow from others, and settings of the curriculum, given as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from world_model.config import TINY, from_json, to_json, with_settings


def test_sizes_follow_the_codec_and_one_that_does_not_divide_is_refused():
    wide = replace(TINY, codec=replace(TINY.codec, spatial_factor=16), video=replace(TINY.video, width=64))
    assert wide.latent_shape[1:] == (2, 4) == wide.token_grid and wide.memory_grid == (1, 2)
    with pytest.raises(ValueError, match="32x72 is not a multiple of 16 .16 for the codec"):
        replace(wide, video=replace(TINY.video, width=72))


def test_settings_change_what_they_name_and_nothing_else():
    changed = with_settings(
        TINY, ["few_step.midpoint=true", "few_step.blocks=[28, 28, 36, 36]", "stable_forcing.guidance=3"]
    )
    assert changed.curriculum.few_step.midpoint and changed.curriculum.few_step.blocks == (28, 28, 36, 36)
    assert changed.curriculum.stable_forcing.guidance == 3.0
    assert changed.curriculum.few_step.batch == TINY.curriculum.few_step.batch
    assert changed.curriculum.history == TINY.curriculum.history
    assert from_json(to_json(changed)) == changed


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("few_stop.midpoint=true", "names no stage; write STAGE.NAME=VALUE with one of codec"),
        ("midpoint=true", "names no stage"),
        ("few_step.blocs=[1]", "few_step has no setting 'blocs'; it knows batch"),
        ("few_step.midpoint=1", "give true or false, it is False now"),
        ("few_step.midpoint", "give true or false"),
        ("few_step.batch=2.5", "give a whole number"),
        ("few_step.guidance=high", "give a number"),
        ("few_step.blocks=8", r"give a list such as \[1, 2\]"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        with_settings(TINY, [setting])


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("transformer", "heads", 0),
        ("transformer", "patch", 0),
        ("transformer", "width", 16.0),
        ("codec", "spatial_factor", -1),
        ("memory", "spatial_stride", 0),
        ("video", "height", 0),
    ],
)
def test_a_size_that_is_none_is_named(part, name, value):
    with pytest.raises(ValueError, match=f"{part}.{name} is {value}; give a whole number of at least 1"):
        replace(TINY, **{part: replace(getattr(TINY, part), **{name: value})})
