"""A signal while a command imports is an interruption; one after its last word changes nothing."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import patient

LAST_WORD = "stopped by SIGTERM; run the same command again to resume.\n"
# Click is imported after the handlers are in place, and long before anything else. The sleep is
# short: a signal that comes just before a sleep is handled after it.
IMPORTING = """
import builtins, runpy, sys, time
known = builtins.__import__
def slow(name, *rest, **words):
    if name == "click":
        builtins.__import__ = known
        print("importing", flush=True)
        while True:
            time.sleep(0.01)
    return known(name, *rest, **words)
builtins.__import__ = slow
sys.argv[1:] = {words!r}
{enter}
"""
MODULE = "runpy.run_module('study.cli', run_name='__main__')"
SCRIPT = "import calstudy; calstudy.main()"
# What a run does, in short; its interpreter then ends slowly.
ENDING = """
import atexit, sys
from study.machines.early_signals import handle_early_signals
handle_early_signals(["run"])
from study.machines.stopping import Ending
from study.terminal.console import console, errors
def slowly():
    print("leaving", flush=True)
    sys.stdin.readline()
atexit.register(slowly)
with Ending(console, errors) as stopping:
    console.print("the last word")
sys.exit({code})
"""


def started(source: str) -> subprocess.Popen[str]:
    names = ("stdin", "stdout", "stderr")
    pipes: dict[str, Any] = dict.fromkeys(names, subprocess.PIPE)
    folder = Path(__file__).parents[3]
    return subprocess.Popen([sys.executable, "-c", source], cwd=folder, text=True, **pipes)


@pytest.mark.parametrize("enter", [MODULE, SCRIPT], ids=["python -m study.cli", "calstudy"])
@pytest.mark.parametrize(
    ("words", "code", "shown", "said"),
    [
        (["run", "small.yaml"], 75, LAST_WORD, ""),
        (["confirm", "small", "--json"], 75, "", LAST_WORD),
        (["status", "small"], -signal.SIGTERM, "", ""),  # it changes nothing
    ],
    ids=["run", "confirm --json", "status"],
)
def test_in_the_first_second(
    words: list[str], code: int, shown: str, said: str, enter: str
) -> None:
    process = started(IMPORTING.format(words=words, enter=enter))
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=patient(60)) == (shown, said)
    assert process.returncode == code


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 1])
def test_after_the_last_word(code: int) -> None:
    """It was 143, of a study that was finished."""
    process = started(ENDING.format(code=code))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["the last word\n", "leaving\n"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    assert process.communicate("go\n", timeout=patient(60)) == ("", "")
    assert process.returncode == code


# A program that crashes while Python ends, as Ray's C++ code may after a stop while it joins.
CRASHING = """
import atexit, os, signal, sys
import calstudy, study.cli
atexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV))
def stopped():
    print("the last word")  # not flushed
    sys.exit({code})
study.cli.main = stopped
calstudy.main()
"""


@pytest.mark.parametrize(("code", "ends"), [(75, 75), (0, -signal.SIGSEGV)])
def test_an_interrupted_command_keeps_its_code_if_python_crashes_while_it_ends(
    code: int, ends: int
) -> None:
    program = started(CRASHING.format(code=code))
    shown, said = program.communicate(timeout=patient(60))
    assert (program.returncode, said) == (ends, "")
    assert code == 0 or shown == "the last word\n"
