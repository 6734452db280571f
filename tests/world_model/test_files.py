"""A file is whole or not there at all, and what was there before stays until then."""

from __future__ import annotations

import pytest

from world_model.files import whole


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("before")
    with whole(file) as part:
        part.write_text("after")
        assert part.parent == tmp_path and file.read_text() == "before"
    assert file.read_text() == "after" and list(tmp_path.iterdir()) == [file]


def test_nothing_is_left_of_a_file_that_failed(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("before")
    with pytest.raises(ZeroDivisionError), whole(file) as part:
        part.write_text("half")
        part.write_text(str(1 / 0))
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_none_of_two_files_appears_when_one_of_them_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), whole(tmp_path / "a") as one, whole(tmp_path / "b") as two:
        one.write_text("whole")
        two.write_text(str(1 / 0))
    assert not list(tmp_path.iterdir())


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    with whole(tmp_path / "a") as one, whole(tmp_path / "a") as two:
        assert one != two
        one.write_text("outer"), two.write_text("inner")
    assert (tmp_path / "a").read_text() == "outer"
