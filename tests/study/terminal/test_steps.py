"""What a command says before it has results to show."""

import io
import threading

import pytest
from rich.console import Console

from study.store.trials import Trials
from study.terminal import steps as module
from study.terminal.progress import Progress
from study.terminal.steps import Steps
from tests.patience import wait_until
from tests.study.terminal.screen import Terminal
from tests.study.terminal.test_progress import SPEC, record


def lines_on_a_pipe(
    monkeypatch: pytest.MonkeyPatch, said_after: float, again: float
) -> tuple[Steps, io.StringIO]:
    monkeypatch.setattr(module, "SAID_AFTER", said_after)
    monkeypatch.setattr(module, "AGAIN_SECONDS", again)
    out = io.StringIO()
    return Steps(Console(file=out, width=80)), out


def wait_for(out: io.StringIO, text: str) -> None:
    wait_until(lambda: text in out.getvalue(), 20)


def hearts() -> set[threading.Thread]:
    """The threads that say a line now and then."""
    return {thread for thread in threading.enumerate() if thread.name == "heartbeat"}


def test_each_step_is_one_line_on_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, out = lines_on_a_pipe(monkeypatch, said_after=0.01, again=3600)
    with steps:
        steps("preparing data many.parquet")
        wait_for(out, "many.parquet\n")
        for done in range(0, 45_001, 100):
            steps.progress(done, 45_000)  # the first line was printed just now
        steps("starting Ray")
        wait_for(out, "starting Ray\n")
    assert out.getvalue() == "preparing data many.parquet\nstarting Ray\n"


def test_who_follows_shows_each_step_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.FOLLOWED, "1")
    steps, out = lines_on_a_pipe(monkeypatch, said_after=0.01, again=3600)
    with steps:
        steps("starting Ray")
        wait_for(out, "\n")
    assert out.getvalue() == f"{module.PASSING}starting Ray\n"


def test_what_is_waited_for_is_said_at_once_on_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, out = lines_on_a_pipe(monkeypatch, said_after=3600, again=3600)
    with steps:
        steps("opening the ledger")
        for seconds in (10, 11):
            steps.waiting(f"waiting ({seconds} s)")
            wait_for(out, "waiting (10 s)\n")
        steps.waiting(None)
        steps.waiting("waiting (10 s)")
        wait_until(lambda: len(out.getvalue().splitlines()) == 2, 20)
    assert out.getvalue() == "waiting (10 s)\n" * 2


def test_a_long_step_is_said_again_on_a_pipe_with_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = hearts()
    steps, out = lines_on_a_pipe(monkeypatch, said_after=0.01, again=0.05)
    with steps:
        steps("preparing data many.parquet")
        wait_for(out, "\n")
        steps.progress(13_999, 45_000)
        wait_for(out, ": 45,000 images, 31%\n")
        monkeypatch.setattr(module, "SHOWN_SECONDS", 0.0)
        wait_for(out, ": 45,000 images, 31% (0 s)\n")
    lines = out.getvalue().splitlines()
    assert lines[0] == "preparing data many.parquet"
    wait_until(lambda: hearts() <= others, 20)  # no line comes from now on
    assert out.getvalue().splitlines() == lines


def test_a_short_step_is_not_said_on_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    others = hearts()
    steps, out = lines_on_a_pipe(monkeypatch, said_after=3600, again=0.0)
    with steps:
        steps("preparing data digits")
        steps.progress(1, 2)
    with steps:
        steps("starting Ray")
    wait_until(lambda: hearts() <= others, 20)  # no line comes from now on
    assert out.getvalue() == ""


def shown(terminal: Terminal) -> str:
    return " ".join(" ".join(terminal.screen()).split())


HEADER = "small: 8 of 8 trials to run, 2 methods"


@pytest.mark.parametrize("width", [80, 20])
def test_a_terminal_shows_the_step_until_the_first_trial_trains(width: int) -> None:
    terminal = Terminal(width, 40)
    steps = Steps(terminal.console)
    with (
        steps,
        Progress(SPEC, Trials({"focal": [], "mbls": []}), terminal.console, steps) as progress,
    ):
        steps("preparing data many.parquet")
        steps.progress(13_999, 45_000)
        step = f"{HEADER} preparing data many.parquet: 45,000 images, 31% ..."
        wait_until(lambda: shown(terminal) == step, 20)
        steps("starting workers")
        assert shown(terminal) == f"{HEADER} starting workers ..."
        progress.started(record("focal", 0, "running"))
        assert "starting" not in shown(terminal) and "focal/0000 0/10" in shown(terminal)
    assert shown(terminal) == HEADER
    terminal.close()


def test_ctrl_c_leaves_no_line_of_a_step() -> None:
    """The terminal shows `^C` where the cursor is."""
    terminal = Terminal(30, 24)
    with pytest.raises(KeyboardInterrupt), Steps(terminal.console) as steps:
        steps("preparing data of a name as long as this")
        terminal.interrupt()
        assert "^C" in shown(terminal)
        raise KeyboardInterrupt
    assert shown(terminal) == ""
    terminal.close()
