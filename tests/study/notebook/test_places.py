"""Lines on a terminal and on a pipe; test_kernel.py has the notebook."""

import io
import sys

import pytest

from study.notebook.places import OnPipe, OnTerminal, place_here
from tests.study.terminal.screen import screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    place = place_here()
    assert isinstance(place, OnPipe) and not place.in_place
    place.stays("one")
    place.passes("two")
    place.end()
    assert capsys.readouterr().out == "one\ntwo\n"


def test_a_terminal_keeps_one_line_for_what_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "12")
    place = place_here()
    assert isinstance(place, OnTerminal) and place.in_place

    def shown() -> list[str]:
        return [line.rstrip() for line in screen(terminal.getvalue(), 12, 5)]

    place.stays("begins")
    place.passes("1 of 12 trials")  # wider than the terminal: cut, so that it can be removed
    assert shown() == ["begins", "1 of 12 tri"]
    place.passes("2 of 12")
    assert shown() == ["begins", "2 of 12"]
    place.stays("ends")
    assert shown() == ["begins", "ends", ""]
    place.passes("3 of 12")
    place.end()
    assert shown() == ["begins", "ends", ""]
