"""Asked to stop: small programs that are signalled, or whose output is closed. Ray's part
is in test_run_stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from study.machines import end_processes, stopping
from study.machines.early_signals import last_word
from study.machines.end_processes import MARK, end_marked
from tests.patience import patient, wait_until

# Approved as it is said; where, when and how often is asserted.
LAST_WORD = f"{last_word('{}')}\n"
ANSWER = f"{stopping.ANSWER}\n"
UNANSWERED = 600.0
BEGIN = """
import ctypes, subprocess, threading, time
from study.machines import stopping
from study.terminal.console import console, errors
"""
# Short sleeps: a signal that comes just before a sleep is handled after it.
ASLEEP = """
while True:
    time.sleep(0.01)
"""
READY = f'print("ready", flush=True){ASLEEP}'
# A mutex that is locked twice: no signal's handler runs, as in Ray's C++ code. Its line
# comes once it is stuck.
STUCK = """
stop.last_acts.append(lambda: print("acted", flush=True))
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
threading.Timer(1.0, lambda: print(child.pid, flush=True)).start()
lock(mutex)
"""
DEFERRED = """
with stop.deferred():
    print("ready", flush=True)
    while not stop.requested():
        time.sleep(0.01)
    print("noted", flush=True)
    {then}
"""
PRINTING = """
def printing():
    while True:
        console.print("a line")
        time.sleep(0.01)
"""


def program(
    body: str, grace: float = 0.3, answer: float = 0.2, **options: Any
) -> subprocess.Popen[str]:
    """Runs the body where it may be stopped; `stop` is what stops it. A signal is answered after
    `answer` seconds: UNANSWERED where only what comes later is looked at."""
    begin = f"{BEGIN}\nstopping.GRACE = {grace}\nstopping.ANSWER_SECONDS = {answer}\n"
    with_stop = "with stopping.Ending(console, errors) as stop:\n"
    source = begin + with_stop + indent(dedent(body), "    ")
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    return subprocess.Popen([sys.executable, "-c", source], text=True, **(pipes | options))


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(pid: int) -> bool:
    """Whether a process has; a dead one whom nobody waits for counts."""
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_at_once_where_nothing_is_deferred(name: str, approved: Callable[..., None]) -> None:
    process = program(READY, answer=UNANSWERED)
    assert first_line(process) == "ready"
    process.send_signal(signal.Signals[name])
    shown, said = process.communicate(timeout=patient(60))
    assert (process.returncode, shown, said) == (75, LAST_WORD.format(name), "")
    assert name in shown and shown.count("\n") == 1
    approved(shown)


def test_within_text_that_is_executed(tmp_path: Path) -> None:
    """As a dataclass is while it is imported: Python would end a module by SIGINT."""
    body = f"exec({READY!r})"
    source = f"{BEGIN}\nwith stopping.Ending(console, errors) as stop:\n    {body}\n"
    (tmp_path / "executing.py").write_text(source)
    process = subprocess.Popen(
        [sys.executable, "-m", "executing"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert first_line(process) == "ready"
    process.terminate()
    process.communicate(timeout=patient(60))
    assert process.returncode == 75


def test_what_it_started_ends_with_it() -> None:
    """Ray's agents outlived a run that ended in order by more than ten seconds."""
    process = program(
        'child = subprocess.Popen(["sleep", "600"], start_new_session=True)\nprint(child.pid)\n'
        + READY
    )
    child = int(first_line(process))
    assert first_line(process) == "ready" and not ended(child)
    process.send_signal(signal.SIGTERM)
    assert process.wait(patient(60)) == 75
    wait_until(lambda: ended(child), 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_process_that_does_not_come_back_is_ended_with_all_it_started(name: str) -> None:
    """What must still be done is done; without the watching thread it would hang for ever."""
    process = program(STUCK)
    child = int(first_line(process))
    process.send_signal(signal.Signals[name])
    shown, said = process.communicate(timeout=patient(60))
    assert (process.returncode, said) == (75, "")
    assert shown.replace(ANSWER, "") == f"acted\n{LAST_WORD.format(name)}"
    wait_until(lambda: ended(child), 30)


def test_the_last_word_is_the_last(approved: Callable[..., None]) -> None:
    """A main thread that came back while it was ended printed its summary after it."""
    process = program("""
        leave = stopping.end_all_in_place_of_this
        stopping.end_all_in_place_of_this = lambda *how: [time.sleep(0.5), leave(*how)]
        with stop.deferred():
            while True:
                console.print("a line")
                time.sleep(0.01)
    """)
    assert first_line(process) == "a line"  # it is where a signal is deferred
    process.send_signal(signal.SIGTERM)
    shown, said = process.communicate(timeout=patient(60))
    assert process.returncode == 75 and said == ""
    *before, last = shown.splitlines(keepends=True)
    assert last == LAST_WORD.format("SIGTERM") and set(before) <= {"a line\n", ANSWER}
    assert before.count(ANSWER) <= 1
    approved(f"{ANSWER}{last}")


@pytest.mark.slow
def test_its_temporary_folders_go_with_it(tmp_path: Path) -> None:
    stuck = (
        f"with stopping.temporary_folder('ray-', {str(tmp_path)!r}) as"
        f" folder:\n{indent(STUCK, '    ')}"
    )
    process = program(stuck)
    first_line(process)
    assert [path.name[:4] for path in tmp_path.iterdir()] == ["ray-"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(patient(60)) == 75 and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_it_goes_on_starting_ends_with_it() -> None:
    """A stop while Ray starts: its agents were started after all that ran had been ended,
    and stayed for a minute."""
    starting = """
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(child.pid, flush=True)
    time.sleep(0.001)
"""
    process = program(f"with stop.deferred():\n while True:\n{indent(starting, ' ')}")
    children = [int(first_line(process))]
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=patient(60))
    children += [int(line) for line in shown.splitlines() if line.isdigit()]
    assert process.returncode == 75 and len(children) > 10
    wait_until(lambda: all(map(ended, children)), 10)


@pytest.mark.parametrize(
    "hangs",
    [
        "end_processes.os.kill = lambda *whom: None  # it never ends",
        "end_processes.Path.read_bytes = lambda file: time.sleep(60)  # nor does reading",
    ],
    ids=["does not die", "cannot be read"],
)
def test_a_process_that_hangs_in_the_kernel_does_not_keep_this_one(hangs: str) -> None:
    source = (
        f"import os, time\nfrom study.machines import end_processes\n{hangs}\n"
        "end_processes.end_all('this', [])\nos._exit(75)"
    )
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "this"})
    try:
        assert subprocess.run([sys.executable, "-c", source], timeout=patient(30)).returncode == 75
    finally:
        child.kill()
        child.wait()


def test_each_process_is_signalled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "this one"})
    signalled: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: signalled.append(pid))
        killing = threading.Thread(target=end_marked, args=("this one",), daemon=True)
        killing.start()
        killing.join(10)
    child.kill()
    child.wait()
    assert signalled == [child.pid] and not killing.is_alive()


def test_a_process_of_which_the_system_says_something_late_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine two agents of Ray stayed."""
    read = Path.read_bytes

    def late(file: Path) -> bytes:
        if file.parent.name == str(child.pid):
            time.sleep(3)
        return read(file)

    mark = f"late-{os.getpid()}"
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: mark})
    signalled: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(end_processes, "READ_SECONDS", 0.05)
        patch.setattr(Path, "read_bytes", late)
        patch.setattr(os, "kill", lambda pid, number: signalled.append(pid))
        end_marked(mark)
    assert signalled == [child.pid]  # before the process of which it is a part ends
    child.kill()
    child.wait()


@pytest.mark.slow
def test_what_is_deferred_looks_itself_and_a_fault_then_is_a_consequence() -> None:
    then = "raise RuntimeError('Ray is dead')"
    process = program(DEFERRED.format(then=then), grace=60, answer=UNANSWERED)
    assert first_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=patient(60)) == ("noted\n" + LAST_WORD.format("SIGTERM"), "")
    assert process.returncode == 75


@pytest.mark.slow
def test_an_alarm_of_ray_does_not_end_it_midway() -> None:
    """Its C++ code aborts a process three seconds after SIGTERM, while it joins."""
    then = "print(signal.alarm(0), flush=True)\n    raise SystemExit(75)"
    process = program(f"import signal\nsignal.alarm(200)\n{DEFERRED.format(then=then)}", grace=60)
    assert first_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=patient(60))[0].splitlines()[:2] == ["noted", "0"]
    assert process.returncode == 75


@pytest.mark.slow
@pytest.mark.parametrize(("pause", "in_order"), [(0.0, True), (0.7, False)])
def test_a_second_signal_ends_it_at_once_unless_it_is_the_same_one(
    pause: float, in_order: bool
) -> None:
    """`timeout` sends its signal to the process, and then to its group."""
    then = "time.sleep(3)\n    print('in order', flush=True)\n    raise SystemExit(75)"
    process = program(DEFERRED.format(then=then), grace=60)
    assert first_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert first_line(process) == "noted"
    time.sleep(pause)
    process.send_signal(signal.SIGTERM)
    shown, said = process.communicate(timeout=patient(60))
    assert (process.returncode, said) == (75, "")
    if in_order:
        assert shown == f"{ANSWER}in order\n"
    else:
        assert shown.replace(ANSWER, "") == LAST_WORD.format("SIGTERM")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "name"),
    [
        pytest.param(READY, "SIGINT", id="at once"),
        pytest.param(DEFERRED.format(then="time.sleep(60)"), "SIGTERM", id="deferred"),
        pytest.param(STUCK, "SIGINT", id="stuck"),
    ],
)
def test_twenty_signals_in_two_seconds(name: str, body: str) -> None:
    """They ended it with their usual effect, and a traceback of what they interrupted."""
    process = program(body, grace=60)
    first_line(process)
    for _ in range(20):
        if process.poll() is None:
            process.send_signal(signal.Signals[name])
        time.sleep(0.1)
    shown, said = process.communicate(timeout=patient(60))
    assert process.returncode == 75 and said == ""
    assert shown.splitlines()[-1] + "\n" == LAST_WORD.format(name) and shown.count(name) == 1


@pytest.mark.slow
def test_an_output_closed_after_a_signal_is_no_second_signal() -> None:
    """`timeout 60 calstudy run ... | head`: what is done in order is still done."""
    then = "\n    ".join(
        [
            "time.sleep(1)",
            "console.print('to nobody')",
            "time.sleep(1)",
            "os.write(2, b'in order, ')",
            "sys.exit(75)",
        ]
    )
    body = f"import os, sys\n{DEFERRED.format(then=then)}"
    process = program(body, grace=60, answer=UNANSWERED)
    assert process.stdout is not None and process.stderr is not None
    assert first_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert first_line(process) == "noted"
    process.stdout.close()
    assert process.wait(patient(60)) == 75 and process.stderr.read().startswith("in order, ")


@pytest.mark.slow
def test_what_is_finishing_postpones_the_end() -> None:
    work = "print('ready', flush=True)\n    time.sleep(3)\n    os.write(2, b'finished')"
    end = "with stop.deferred():\n    time.sleep(60)"
    process = program(f"import os\nwith stop.deferred(), stop.finishing():\n    {work}\n{end}")
    assert process.stderr is not None
    assert first_line(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert process.wait(patient(60)) == 75 and process.stderr.read() == "finished"


@pytest.mark.slow
def test_what_was_ignored_at_the_start_stays_ignored() -> None:
    """nohup."""
    body = "print('ready', flush=True)\ninput()\nconsole.print('went on')"
    process = program(body, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert first_line(process) == "ready"
    process.send_signal(signal.SIGHUP)
    assert (
        process.communicate("\n", timeout=patient(60)) == ("went on\n", "")
        and process.returncode == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        f"{PRINTING}\nprinting()",
        f"{PRINTING}\nthreading.Thread(target=printing, daemon=True).start(){ASLEEP}",
        f"{PRINTING}\nwith stop.deferred():\n    printing()",
        f"console.print('a line'){ASLEEP}",
    ],
    ids=["at once", "printed by a thread", "deferred for too long", "nothing more is printed"],
)
def test_an_output_that_nobody_reads_any_more(body: str) -> None:
    """`| head -1`. The last word goes where there is somebody."""
    process = program(body)
    assert process.stdout is not None and process.stderr is not None
    assert first_line(process) == "a line"
    process.stdout.close()
    assert process.wait(patient(60)) == 75 and process.stderr.read() == LAST_WORD.format(
        "a closed output"
    )


@pytest.mark.slow
def test_a_terminal_that_was_closed() -> None:
    """Without a SIGHUP (`trap '' HUP`) its first sign is an input/output error."""
    ours, theirs = os.openpty()
    process = program(f"{PRINTING}\nprinting()", stdout=theirs)
    os.close(theirs)
    assert os.read(ours, 6) == b"a line"
    os.close(ours)
    assert process.stderr is not None
    assert process.wait(patient(60)) == 75 and process.stderr.read() == LAST_WORD.format(
        "a closed output"
    )


@pytest.mark.slow
def test_what_was_closed_before_the_start_is_discarded(tmp_path: Path) -> None:
    """Else the next file to be opened, the ledger even, would be the standard output."""
    code = (
        "import sys, study.cli as cli\ncli._open_standard_files()\nfile = open(sys.argv[1],"
        " 'w')\nfile.write('kept')"
    )
    code += "\nfile.flush()\nimport os\nos.write(1, b'printed')\nos.write(2, b'printed')"
    words = [sys.executable, "-c", code, str(tmp_path / "file")]
    assert subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words]).returncode == 0
    assert (tmp_path / "file").read_text() == "kept"
