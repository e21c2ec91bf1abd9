"""Lines on a pipe; test_kernel.py has the notebook."""

import pytest

from study.notebook.places import Place


def test_lines_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place()
    assert not place.in_place
    place.stays("one")
    place.passes("two")
    place.end()
    assert capsys.readouterr().out == "one\ntwo\n"
