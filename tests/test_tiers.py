"""The fixture that keeps each test in its tier, tried on tests of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience, tiers
from tests.patience import patient

ROOT = Path(__file__).parents[1]
PLUGIN = """\
import pytest
from tests import tiers
from tests.patience import patient
tiers.watch_starts()
tiers.SECONDS = {seconds}
tiers.patient = lambda seconds: seconds

@pytest.fixture(autouse=True)
def tier(request):
    yield from tiers.kept(request)
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["ip", "netns", "add", "a"], True),
        (["/usr/sbin/sshd", "-D"], True),
        ([sys.executable, "-m", "mlflow", "server", "--port", "1"], True),
        (["/x/bin/ray", "start", "--head"], True),
        (["/usr/bin/chromedriver"], True),
        (["ip", "-V"], False),
        ([sys.executable, "-m", "study.cli", "run", "a.yaml"], False),
        (["bash", "-n", "sshd"], False),
    ],
)
def test_what_a_command_starts(command: list[str], expected: bool) -> None:
    assert tiers.belongs_to_platform(command) is expected


def test_files_that_the_second_tier_does_not_read(tmp_path: Path) -> None:
    """One with a test of it would be named where the first tier reads it."""
    for name, text, expected in (
        ("test_one.py", "def test_it() -> None: ...", True),
        ("test_two.py", "pytestmark = pytest.mark.platform", False),
        ("test_three.py", "def test_it(cluster: Cluster) -> None: ...", False),
        ("conftest.py", "", False),
    ):
        file = tmp_path / name
        file.write_text(text)
        assert tiers.has_none(file) is expected


def result_of(tmp_path: Path, body: str, seconds: float = 20.0) -> str:
    """What pytest says at the end of a test with that body."""
    (tmp_path / "conftest.py").write_text(PLUGIN.format(seconds=seconds))
    (tmp_path / "test_one.py").write_text(body)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = platform\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout


STARTS = """
import pytest, subprocess
def test_it():
    try:
        subprocess.run(["sshd", "--no-such-word"])
    except OSError:
        pass
@pytest.mark.platform
def test_marked():
    test_it()
"""
LASTS = """
import pytest, time
def test_it():
    time.sleep(0.2)
@pytest.mark.platform
def test_marked():
    test_it()
"""


@pytest.mark.slow
def test_a_test_that_starts_a_service_fails_unless_it_is_marked(tmp_path: Path) -> None:
    said = result_of(tmp_path, STARTS)
    assert "2 passed, 1 error" in said and "ERROR at teardown of test_it " in said
    assert "mark it `platform`: it started ['sshd" in said


@pytest.mark.slow
def test_a_test_that_takes_too_long_fails_unless_it_is_marked(tmp_path: Path) -> None:
    said = result_of(tmp_path, LASTS, seconds=0.001)
    assert "2 passed, 1 error" in said and "ERROR at teardown of test_it " in said
    assert "mark it `platform` or make it quicker" in said


def test_what_was_left_out_is_one_line() -> None:
    def report(reason: str) -> pytest.TestReport:
        place = ("tests/test_x.py", 1, f"Skipped: {reason}")
        return pytest.TestReport("x", ("x", 1, "x"), {}, "skipped", place, "setup")

    found = tiers.left_out([report("no browser"), report("no Slurm"), report("no browser")])
    assert found == "left out: 2 (no browser); 1 (no Slurm)"
    assert tiers.left_out([]) is None


def test_patience_grows_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    for load, expected in ((0.1, 40.0), (16.0, 160.0)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert patient(20.0) == expected
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT")
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.0, 0.0))
    assert patient(20.0) == 20.0


def test_slowness_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOP_SECONDS", 1e6)
    assert patience.slowness() == 1.0
    monkeypatch.setattr(patience, "LOOP_SECONDS", 1e-6)
    assert patience.slowness() > 100.0
