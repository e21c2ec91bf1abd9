"""One driver at a time writes a ledger: locks where there are some, and the driver's number."""

import errno
import fcntl
import shutil
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from study.schema.errors import LedgerError
from study.schema.objective import Objective
from study.store import driver_lock as driver_lock_module
from study.store import ledger as ledger_module
from study.store import ledger_reader as reader_module
from study.store.driver_lock import driver_is_alive, driver_lock
from study.store.ledger import Ledger, open_storage
from study.store.ledger_reader import LedgerReader
from study.store.same_ledger import traces_of
from study.store.trials import trial_directory
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import asked
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.outcome import Outcome

OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
SPACE: dict[str, BaseDistribution] = {
    "method.gamma": FloatDistribution(0.0, 5.0),
    "model.depth": IntDistribution(1, 3),
}


@pytest.fixture
def storages(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of one name, as on two disks."""
    found = tmp_path / "one" / "digits", tmp_path / "two" / "digits"
    for each in found:
        each.mkdir(parents=True)
    return found


def ledger_of(directory: Path, path: Path | None) -> Ledger:
    ledger = Ledger(open_storage(directory, None if path is None else str(path)), "digits", "one")
    ledger.open("focal", OBJECTIVES)
    return ledger


def told(ledger: Ledger, times: int) -> None:
    """So many whole trials, by every write that a driver makes."""
    for _ in range(times):
        record = asked(ledger, "focal", SPACE)
        attempt = ledger.begin_attempt("focal", record.number)
        metrics = {"accuracy": 0.5 + record.params["method.gamma"] / 100, "ece": 0.1}
        outcome = Outcome(state="complete", attempt=attempt, epoch=1, seconds=1.0, metrics=metrics)
        ledger.tell("focal", record.number, outcome, OBJECTIVES)
    ledger.note("focal", "said", times)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_each_write_checks_the_drivers_number(tmp_path: Path, elsewhere: bool) -> None:
    path = tmp_path / "elsewhere.log" if elsewhere else None
    ledger = None if path is None else str(path)
    first = ledger_of(tmp_path, path)
    told(first, 2)
    left = asked(first, "focal", SPACE)
    second = ledger_of(tmp_path, path)
    second.check_driver("focal")
    before = LedgerReader(tmp_path, ledger, "digits", ["focal"]).records(), second.notes("focal")
    outcome = Outcome(state="complete", metrics={"accuracy": 0.5, "ece": 0.1})
    for write in (
        lambda: asked(first, "focal", SPACE),
        lambda: first.begin_attempt("focal", left.number),
        lambda: first.died("focal", left.number, "node"),
        lambda: first.tell("focal", left.number, outcome, OBJECTIVES),
        lambda: first.note("focal", "said", 9),
    ):
        with pytest.raises(
            LedgerError, match=r"another calstudy process \(pid \d+ on .*This one stops"
        ):
            write()
    assert (
        LedgerReader(tmp_path, ledger, "digits", ["focal"]).records(),
        second.notes("focal"),
    ) == before
    assert second.notes("focal")["driver"]["number"] == 2
    second.tell("focal", left.number, outcome, OBJECTIVES)


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: Any, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(driver_lock_module, "_warned", set())


def test_a_file_system_without_locks_is_named(no_flock: None, storages: tuple[Path, Path]) -> None:
    with pytest.raises(LedgerError) as refused, driver_lock(storages[0]):
        pass
    said = str(refused.value)
    assert (
        str(storages[0]) in said
        and "ENOLCK" in said
        and "-o flock" in said
        and "another" not in said
    )
    assert not driver_is_alive(storages[0])


@pytest.fixture
def no_flock_in_storages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folders `one` and `two` lie where there are no locks."""
    flock = fcntl.flock

    def refused(file: Any, how: int) -> None:
        name = Path("/proc/self/fd", str(getattr(file, "fileno", lambda: file)())).readlink()
        if any(name.is_relative_to(tmp_path / each) for each in ("one", "two")):
            raise OSError(errno.ENOLCK, "No locks available")
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(driver_lock_module, "_warned", set())


def test_where_the_storage_has_no_locks_one_is_beside_the_ledger(
    no_flock_in_storages: None,
    storages: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "head").mkdir()
    ledger = str(tmp_path / "head" / "ledger.log")
    for writes in (True, False):
        with driver_lock(storages[0], ledger, writes):
            assert all(driver_is_alive(each, ledger) for each in storages)
            for each in storages:  # a copy of the study too
                with pytest.raises(LedgerError, match=r"head: another calstudy process .*pid \d+"):
                    driver_lock(each, ledger, writes=False).__enter__()
            other = storages[0].with_name("other")
            other.mkdir(exist_ok=True)
            with driver_lock(other, ledger, writes=False):  # another study of the same ledger
                pass
        assert not driver_is_alive(storages[0], ledger)
    assert "pid" in (storages[0] / "driver.lock").read_text()
    warning = capsys.readouterr().err.splitlines()[0]
    assert "ENOLCK" in warning and "the lock beside the ledger keeps a second driver" in warning


def test_a_ledger_elsewhere_without_locks_is_refused(
    no_flock: None, storages: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(LedgerError, match="ENOLCK") as refused:
        driver_lock(storages[0], str(tmp_path / "ledger.log")).__enter__()
    assert refused.value.found.startswith(f"{tmp_path}: this file system has no file locks")


@pytest.mark.slow
def test_two_heads_with_ledgers_of_their_own_are_kept_apart(
    no_flock_in_storages: None, tmp_path: Path
) -> None:
    """Both would find the path free on their own disk."""
    (tmp_path / "one").mkdir()
    ledger = tmp_path / "head" / "ledger.log"
    keys = {"methods": ["focal"], "trials": 1, "epochs": 1, "ledger": str(ledger)}
    words = ("run", write_spec(tmp_path / "small.yaml", **keys), "--storage", tmp_path / "one")
    here(*words)
    shutil.move(tmp_path / "head", tmp_path / "the first head")
    assert f"ledger: {ledger} is missing, but the study at" in here(*words, check=2)
    assert not ledger.exists()
    shutil.move(tmp_path / "the first head", tmp_path / "head")
    here(*words, "--trials", 2)
    counts = here_json("status", "small", "--storage", tmp_path / "one")["methods"]["focal"]
    assert counts["complete"] == 2


def test_trials_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against what the study's folder says too: of ten thousand trials each check takes seconds."""
    told(ledger_of(tmp_path, None), 3)
    for number in range(3):
        attempt_directory(trial_directory(tmp_path, "focal", number), 1).mkdir(parents=True)
    checks: list[int] = []
    for module in (ledger_module, reader_module):
        monkeypatch.setattr(module, "check_trial", lambda *of: checks.append(1))
    traces = traces_of(tmp_path, None, "digits", "one", ["focal"], True)
    found = LedgerReader(tmp_path, None, "digits", ["focal"], traces).records()
    assert (len(found), len(checks)) == (3, 3)
    ledger = ledger_of(tmp_path, None)
    assert (len(ledger.records("focal")), len(checks)) == (3, 6)
    attempt_directory(trial_directory(tmp_path, "focal", 4), 1).mkdir(parents=True)
    with pytest.raises(LedgerError, match="has no focal/0004"):
        traces = traces_of(tmp_path, None, "digits", "one", ["focal"], True)
        LedgerReader(tmp_path, None, "digits", ["focal"], traces).storage()
