"""Two tiers of tests: `make test`, and `make platform` for what a bare machine cannot do.

A test of the second tier has the marker `platform`. It needs root, a network namespace, a
service, a browser, Slurm or a cluster's head; or it kills whole runs; or it takes more than
`SECONDS`. A test that uses one of `FIXTURES` gets the marker by itself. Every other test fails
where it starts such a thing, or takes longer.
"""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.patience import patient, slowness

SECONDS = 20.0  # that a test of the first tier may take on an idle machine
FIXTURES = frozenset({"hosts_allowed", "mlflow_server", "browser", "places"})
# Each file with a test of the second tier has one of these: the marker, a fixture of `FIXTURES`, or
# one of a conftest.py that uses it.
WORDS = re.compile(rf"\b({'|'.join(['platform', 'cluster', *FIXTURES])})\b")
PROGRAMS = frozenset(
    {
        "chromedriver",
        "chromium",
        "gcs_server",
        "moto_server",
        "sbatch",
        "slurmctld",
        "slurmd",
        "sshd",
        "unshare",
    }
)
COMMANDS = (("ip", "netns"), ("mlflow", "server"), ("moto", "server"), ("ray", "start"))

_started: list[str] = []


def belongs_to_platform(words: Sequence[object]) -> bool:
    """Whether a command starts what only the second tier may."""
    names = [Path(str(word)).name for word in words]
    if PROGRAMS.intersection(names[:1]):
        return True
    return any(pair in COMMANDS for pair in pairwise(names))


def note_start(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: what pytest's own process starts."""
    if event != "subprocess.Popen":
        return
    command = arguments[1]
    words = command.split() if isinstance(command, str) else [*command]
    if belongs_to_platform(words):
        _started.append(" ".join(map(str, words)))


def watch_starts() -> None:
    """From now on; a process cannot take an audit hook back."""
    sys.addaudithook(note_start)


def mark(items: list[pytest.Item]) -> None:
    for item in items:
        if FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("platform")
    marked = {item.path for item in items if item.get_closest_marker("platform")}
    if missed := [str(file) for file in sorted(marked) if has_none(file)]:
        raise pytest.UsageError(f"{missed[0]}: `make platform` reads none without {WORDS.pattern}")


def has_none(file: Path) -> bool:
    """Whether a file of tests can have none of the second tier: `make platform` does not import it,
    which takes a process of pytest half of its start."""
    return file.name.startswith("test_") and not WORDS.search(file.read_text())


def kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of the first tier that does what only the second may."""
    began = time.monotonic()
    limit = patient(SECONDS)
    yield
    started = _started.copy()
    _started.clear()
    if request.node.get_closest_marker("platform"):
        return
    assert not started, f"mark it `platform`: it started {started}"
    took = time.monotonic() - began
    if took > limit:
        limit = max(limit, patient(SECONDS), SECONDS * slowness())
        # How long a test waits for its turn on a busy machine varies, also from test to test.
        limit *= 1 if limit == SECONDS else 2
    assert took <= limit, f"mark it `platform` or make it quicker: {took:.0f} s of {limit:.0f}"


def left_out(skipped: list[pytest.TestReport]) -> str | None:
    """One line on the tests of the second tier that this machine cannot run; None without any."""
    reasons: dict[str, int] = {}
    for report in skipped:
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            reasons[reason] = reasons.get(reason, 0) + 1
    if not reasons:
        return None
    most_first = sorted(reasons.items(), key=lambda each: -each[1])
    return "left out: " + "; ".join(f"{count} ({reason})" for reason, count in most_first)
