"""One slot's view of a vector environment's infos."""

from __future__ import annotations

import numpy as np

from wp2env.infos import slot_info


def test_a_slot_sees_its_own_entries_as_pythons_own_values():
    infos = {
        "step": np.array([3, 4]), "_step": np.array([True, True]),
        "caption": {"scene": np.array(["a", "b"], object), "_scene": np.array([True, True])},
        "_caption": np.array([True, True]),
        "start_index": np.array([0, 7]), "_start_index": np.array([False, True]),
        "frames": np.arange(4).reshape(2, 2), "_frames": np.array([True, False]),
    }  # fmt: skip
    first, second = slot_info(infos, 0), slot_info(infos, 1)
    assert first.pop("frames").tolist() == [0, 1]
    assert first == {"step": 3, "caption": {"scene": "a"}}
    assert second == {"step": 4, "caption": {"scene": "b"}, "start_index": 7} and type(second["step"]) is int


def test_infos_without_a_mask_belong_to_nobody():
    assert slot_info({"fps": 9}, 0) == {}
