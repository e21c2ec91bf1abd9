"""A command followed in a process of its own: small programs in place of calstudy."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent

import pytest

from study.notebook import process
from study.notebook.places import Place
from study.notebook.process import CommandFailed, run_command
from study.schema.errors import TryAgain
from tests.patience import patient, wait_until
from trainables.problems import UserError

# It notes each SIGINT, and ends in order half a second after the first.
HEEDS = """
import os, signal, sys, time
heard = []
signal.signal(signal.SIGINT, lambda *of: heard.append(1))
print(os.getpid(), flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(0.5)
open(sys.argv[1], "w").write(f"{len(heard)} heard")
sys.exit(75)
"""


class Shown(Place):
    """Keeps the lines. interrupts: how often a line interrupts who follows."""

    def __init__(self, in_place: bool = False, interrupts: int = 0) -> None:
        self.in_place = in_place
        self.lines: list[str] = []
        self.passed: list[str] = []
        self.ends = 0
        self._interrupts = interrupts

    def stays(self, line: str) -> None:
        self.lines.append(line)
        if self._interrupts:
            self._interrupts -= 1
            raise KeyboardInterrupt

    def passes(self, line: str) -> None:
        self.passed.append(line)

    def end(self) -> None:
        self.ends += 1


def follow(
    code: str, shown: Shown | None = None, *words: str, echo: bool = True
) -> tuple[str, ...]:
    program = [sys.executable, "-c", dedent(code)]
    return run_command(list(words) or ["run"], shown or Shown(), "run()", echo, program)


def test_its_lines_are_shown_and_given(capfd: pytest.CaptureFixture[str]) -> None:
    shown = Shown(in_place=True)
    found = follow("print('one'); print('» 1 of 2', flush=True); print('two', end='')", shown)
    assert found == ("one", "two") and shown.lines == ["one", "two"]
    assert shown.passed == ["1 of 2"] and shown.ends == 1
    quiet = Shown()
    assert follow("print('one')", quiet, echo=False) == ("one",) and quiet.lines == []
    assert capfd.readouterr() == ("", "")


def test_a_line_is_no_command_for_the_terminal() -> None:
    shown = Shown()
    follow(r"print('\x1b]0;title\x07')", shown)
    assert shown.lines == [r"\x1b]0;title\x07"]


def test_what_a_kernel_sets_for_its_own_output_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in process.NOT_FOR_A_PIPE:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OTHER", "kept")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    (line,) = follow(code)
    found = json.loads(line)
    assert not {*process.NOT_FOR_A_PIPE, "CALSTUDY_FOLLOWED"} & {*found}
    assert found["OTHER"] == "kept" and found["PYTHONSAFEPATH"] == "1"
    (line,) = follow(code, Shown(in_place=True))
    assert json.loads(line)["CALSTUDY_FOLLOWED"] == "1"


REFUSES = """
import sys
print("UserWarning: something else", file=sys.stderr)
print("name: it has begun. Restore these lines:\\n  epochs: was 2, is 3\\n  trials: was 1, is 2",
      file=sys.stderr)
sys.exit(2)
"""


def test_a_mistake_is_raised_in_the_commands_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError) as raised:
        follow(REFUSES)
    lines = ["name: it has begun. Restore these lines:", "  epochs: was 2, is 3"]
    assert str(raised.value).splitlines() == [*lines, "  trials: was 1, is 2"]
    assert not isinstance(raised.value, TryAgain)
    assert capsys.readouterr().err == "UserWarning: something else\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print('Ray: no.', file=sys.stderr); sys.exit(75)", "Ray: no."),
        (
            "import sys; print('stopped by SIGTERM; run again.'); print('x'); sys.exit(75)",
            "stopped by SIGTERM; run again.",
        ),
        ("import os; os.kill(os.getpid(), 9)", "calstudy run was ended by SIGKILL."),
    ],
    ids=["on stderr", "among the results", "killed"],
)
def test_what_may_succeed_says_run_again(code: str, words: str) -> None:
    with pytest.raises(TryAgain) as raised:
        follow(code)
    assert str(raised.value) == f"{words} Run it again: run()"


def test_a_failure_is_no_mistake_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandFailed, match="calstudy run failed: ZeroDivisionError"):
        follow("1 / 0")
    assert capsys.readouterr().err.startswith("Traceback")


def test_a_warning_at_the_end_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    follow("import sys; print('a warning', file=sys.stderr)")
    assert capsys.readouterr().err == "a warning\n"


def test_any_thread_may_follow_and_no_handler_is_changed() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    before = [signal.getsignal(number) for number in numbers]
    found: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: found.append(follow("print('done')")))
    thread.start()
    thread.join()
    assert found == [("done",)]
    assert [signal.getsignal(number) for number in numbers] == before


def test_an_output_that_another_process_keeps_open_is_not_waited_for() -> None:
    code = """
    import subprocess
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
    """
    (line,) = follow(code)
    os.kill(int(line), signal.SIGKILL)


def test_an_interruption_waits_for_the_end_in_order(tmp_path: Path) -> None:
    program = [sys.executable, "-c", HEEDS, str(tmp_path / "heard")]
    with pytest.raises(KeyboardInterrupt, match=r"run was stopped\. Run it again: run\(\)"):
        run_command(["run"], Shown(interrupts=1), "run()", True, program)
    assert (tmp_path / "heard").read_text() == "1 heard"


def test_so_does_one_that_comes_between_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the one that follows does at that moment."""

    class Polled(subprocess.Popen[bytes]):
        polls = 0

        def poll(self) -> int | None:
            Polled.polls += 1
            if Polled.polls == 1:
                raise KeyboardInterrupt
            return super().poll()

    monkeypatch.setattr(process.subprocess, "Popen", Polled)
    program = [sys.executable, "-c", HEEDS, str(tmp_path / "heard")]
    with pytest.raises(KeyboardInterrupt, match=r"run was stopped\. Run it again: run\(\)"):
        run_command(["run"], Shown(), "run()", True, program)
    assert (tmp_path / "heard").read_text() == "1 heard"


def test_a_command_whose_lines_cannot_be_shown_is_stopped_in_order(tmp_path: Path) -> None:
    class Broken(Shown):
        def stays(self, line: str) -> None:
            raise BrokenPipeError

    heard = tmp_path / "heard"
    with pytest.raises(BrokenPipeError):
        follow(HEEDS, Broken(), str(heard))
    wait_until(lambda: heard.exists() and heard.read_text(), 60)
    assert heard.read_text() == "1 heard"


DEAF = """
import signal, time
signal.signal(signal.SIGINT, lambda *of: print("heard", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


def test_a_second_interruption_ends_it_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a command that does not heed it."""
    monkeypatch.setattr(process, "LAST_SECONDS", 0.2)
    shown = Shown(interrupts=2)
    with pytest.raises(KeyboardInterrupt):
        follow(DEAF, shown)
    assert shown.lines[:2] == ["ready", "heard"]


FOLLOWS = """
import sys
from study.notebook.places import Place
from study.notebook.process import run_command
program = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
try:
    run_command(["run"], Place(), "run()", True, program)
except KeyboardInterrupt as error:
    print(error)
"""


def test_a_notebook_that_interrupts_its_whole_group_interrupts_it_once(tmp_path: Path) -> None:
    """As Jupyter does. A command that hears two signals ends at once."""
    heard = tmp_path / "heard"
    words = [sys.executable, "-c", FOLLOWS, HEEDS, str(heard)]
    follower = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert follower.stdout is not None
    assert follower.stdout.readline().strip().isdigit()
    os.killpg(follower.pid, signal.SIGINT)
    assert (
        follower.communicate(timeout=patient(60))[0]
        == "calstudy run was stopped. Run it again: run()\n"
    )
    assert heard.read_text() == "1 heard"


SILENT = """
import os, sys, time
from study.machines.stopping import Ending
from study.terminal.console import console, errors
with Ending(console, errors) as stop:
    with stop.deferred():
        print(os.getpid(), flush=True)
        while not stop.requested():
            time.sleep(0.01)
        open(sys.argv[1], "w").write(str(stop.caught))
"""


@pytest.mark.slow
def test_a_run_ends_in_order_when_the_kernel_is_killed(tmp_path: Path) -> None:
    """Also while it has nothing to print."""
    caught = tmp_path / "caught"
    words = [sys.executable, "-c", FOLLOWS, SILENT, str(caught)]
    follower = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    pid = int(follower.stdout.readline())
    follower.kill()
    follower.wait()
    wait_until(lambda: caught.exists() and caught.read_text(), 60)
    assert caught.read_text() == "a closed output"
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 60)
