"""A ledger in a real PostgreSQL: one driver, writes that happen once, causes in one line."""

import errno
import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from benchmarks.chaos.postgres import DATABASE, PASSWORD, USER, LossyProxy, Postgres
from study.schema.errors import LedgerError, LedgerUnavailable
from study.schema.objective import Objective
from study.store import database as database_module
from study.store import driver_lock as driver_lock_module
from study.store import ledger as ledger_module
from study.store import ledger_reader as reader_module
from study.store.connection import cause_of
from study.store.database import Database, Waiting, read_database
from study.store.database_lock import DatabaseLock
from study.store.driver_lock import driver_is_alive, driver_lock
from study.store.ledger import Ledger, open_storage
from study.store.ledger_reader import LedgerReader
from study.store.recorded import Recorded
from study.store.removal import remove
from study.store.same_ledger import traces_of
from study.store.study import Study
from study.store.trials import Trials, trial_directory
from tests.study.made import asked
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.outcome import Outcome

OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
SPACE: dict[str, BaseDistribution] = {
    "method.gamma": FloatDistribution(0.0, 5.0),
    "model.depth": IntDistribution(1, 3),
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "PAUSE", 0.05)


@pytest.fixture
def storages(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of one name, as on two disks."""
    found = tmp_path / "one" / "digits", tmp_path / "two" / "digits"
    for each in found:
        each.mkdir(parents=True)
    return found


def ledger_of(
    directory: Path, url: str | None, lock: Any = None, waiting: Waiting | None = None
) -> Ledger:
    ledger = Ledger(open_storage(directory, url, lock, waiting), "digits", "one")
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


def read(directory: Path, url: str) -> list[tuple[int, str, dict[str, Any], int]]:
    found = LedgerReader(directory, url, "digits", ["focal"]).records().of("focal")
    return [(record.number, record.state, record.params, record.attempt) for record in found]


# ---- one driver ----------------------------------------------------------------------------------


def test_two_storages_with_one_database_have_one_driver(
    storages: tuple[Path, Path], database: str
) -> None:
    with driver_lock(storages[0], database):
        second = driver_lock(storages[1], database)
        with pytest.raises(
            LedgerError, match=r"another calstudy process is running 'digits' .*pid \d+ on"
        ) as refused:
            second.__enter__()
        assert PASSWORD not in str(refused.value) and "\n" not in str(refused.value)
        other = storages[0].with_name("other")
        other.mkdir()
        with driver_lock(other, database):  # another study in the same database
            pass
    with driver_lock(storages[1], database):
        pass


def test_a_lock_that_is_lost_is_taken_again_before_the_next_write(
    storages: tuple[Path, Path], database: str, postgres: Postgres
) -> None:
    with driver_lock(storages[0], database) as lock:
        ledger = ledger_of(storages[0], database, lock)
        told(ledger, 1)
        assert postgres.drop_connections(database.rpartition("/")[2]) >= 2
        told(ledger, 1)
        with (
            pytest.raises(LedgerError, match="another calstudy process"),
            driver_lock(storages[1], database),
        ):
            pass
    assert [number for number, *_ in read(storages[0], database)] == [0, 1]


def test_a_driver_that_lost_its_lock_to_another_stops(
    storages: tuple[Path, Path], database: str, postgres: Postgres
) -> None:
    with driver_lock(storages[0], database) as lock:
        ledger = ledger_of(storages[0], database, lock)
        told(ledger, 1)
        postgres.drop_connections(database.rpartition("/")[2])
        with driver_lock(storages[1], database) as taken:
            for write in (lambda: told(ledger, 1), lambda: ledger.note("focal", "said", 9)):
                with pytest.raises(LedgerError, match="another calstudy process is running"):
                    write()
            told(ledger_of(storages[1], database, taken), 1)
        with pytest.raises(LedgerError, match=r"runs 'digits' now\. This one stops"):
            told(ledger, 1)
    assert [number for number, *_ in read(storages[0], database)] == [0, 1]


@pytest.mark.parametrize(
    "kind",
    ["journal", "sqlite", pytest.param("postgresql", marks=pytest.mark.platform)],
)
def test_each_write_checks_the_drivers_number(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = {"journal": None, "sqlite": f"sqlite:///{tmp_path / 'ledger.db'}"}.get(kind, "")
    if url == "":
        url = request.getfixturevalue("database")
    first = ledger_of(tmp_path, url)
    told(first, 2)
    left = asked(first, "focal", SPACE)
    second = ledger_of(tmp_path, url)
    second.check_driver("focal")
    before = LedgerReader(tmp_path, url, "digits", ["focal"]).records(), second.notes("focal")
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
        LedgerReader(tmp_path, url, "digits", ["focal"]).records(),
        second.notes("focal"),
    ) == before
    assert second.notes("focal")["driver"]["number"] == 2
    second.tell("focal", left.number, outcome, OBJECTIVES)


@pytest.mark.parametrize("link", [None, Path.symlink_to, Path.hardlink_to])
def test_sqlite_has_a_file_lock_beside_it(
    storages: tuple[Path, Path], tmp_path: Path, link: Any
) -> None:
    file = other = tmp_path / "ledger.db"
    ledger_of(storages[0], f"sqlite:///{file}")
    if link is not None:
        other = tmp_path / "two" / "other.db"
        link(other, file)
    second = driver_lock(storages[1], f"sqlite:///{other}")
    with driver_lock(storages[0], f"sqlite:///{file}"):
        with pytest.raises(LedgerError, match="another calstudy process"):
            second.__enter__()
        told(ledger_of(storages[0], f"sqlite:///{file}"), 1)  # it can be written


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


def test_without_file_locks_the_lock_in_the_database_is_enough(
    no_flock: None, storages: tuple[Path, Path], database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with driver_lock(storages[0], database):
        assert "ENOLCK" in (warning := capsys.readouterr().err) and warning.count("\n") == 1
        with pytest.raises(LedgerError, match="another calstudy process is running"):
            driver_lock(storages[1], database).__enter__()
        assert all(driver_is_alive(each, database) for each in storages)
    assert not driver_is_alive(storages[0], database)
    assert "pid" in (storages[0] / "driver.lock").read_text()


# ---- patience ------------------------------------------------------------------------------------


def test_a_restart_is_waited_for(
    storages: tuple[Path, Path], database: str, postgres: Postgres
) -> None:
    lines: list[str | None] = []
    waiting = Waiting(patience=60, show=lines.append)
    with driver_lock(storages[0], database) as lock:
        ledger = ledger_of(storages[0], database, lock, waiting)
        for mode in ("fast", "immediate", "kill"):
            postgres.stop(mode)
            back = threading.Timer(0.5, postgres.start)
            back.start()
            told(ledger, 2)
            back.join()
    found = read(storages[0], database)
    assert [(number, state, attempt) for number, state, _, attempt in found] == [
        (n, "complete", 1) for n in range(6)
    ]
    assert lines[-1] is None and waiting.waited > 1.0
    assert f"ledger: PostgreSQL at 127.0.0.1:{postgres.port}/" in str(lines[0])
    assert "does not answer; waiting (0 s)" in str(lines[0])


def test_a_connection_dropped_within_a_read_is_made_again(
    tmp_path: Path, database: str, postgres: Postgres
) -> None:
    """Optuna takes the error for one of too many variables, and asks again of the broken
    session."""
    storage = open_storage(tmp_path, database, None, Waiting(patience=20))
    ledger = Ledger(storage, "digits", "one")
    ledger.open("focal", OBJECTIVES)
    told(ledger, 1)
    dropped: list[int] = []

    def drop(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if "FROM trials" in statement and not dropped:
            dropped.append(postgres.drop_connections(database.rpartition("/")[2]))

    event.listen(storage.engine, "before_cursor_execute", drop)  # type: ignore[attr-defined]
    assert [record.number for record in ledger.records("focal")] == [0] and dropped


def test_a_commit_whose_answer_was_lost_is_made_once(
    tmp_path: Path, database: str, postgres: Postgres
) -> None:
    """Each fifth commit of two trials in turn; the trials must be those of a run
    where nothing was lost."""
    with LossyProxy(postgres) as proxy:
        storage = open_storage(tmp_path, proxy.url_of(database), None, Waiting(patience=20))

        def trials() -> list[tuple[int, str, dict[str, Any], int]]:
            ledger = Ledger(storage, "digits", "one")
            ledger.open("focal", OBJECTIVES)
            told(ledger, 2)
            found = read(tmp_path, database)
            storage.delete_study(storage.get_study_id_from_name("digits/focal"))
            return found

        before = proxy.commits
        whole = trials()
        commits = proxy.commits - before
        assert (
            [number for number, *_ in whole] == [0, 1]
            and all(params for _, _, params, _ in whole)
            and commits > 20
        )
        for number in range(0, commits, 5):
            proxy.lose(after=number)
            assert trials() == whole, f"commit {number}"
        assert proxy.lost == len(range(0, commits, 5))


def test_a_wait_within_a_wait_counts_once(tmp_path: Path) -> None:
    lines: list[str | None] = []
    waiting = Waiting(patience=20, show=lines.append)
    ledger = ledger_of(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}", None, waiting)
    record = asked(ledger, "focal", SPACE)
    storage: Any = ledger._storage
    left = [8]

    def fail(*statement: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise OperationalError("", None, Exception("connection refused"))

    event.listen(storage.engine, "before_cursor_execute", fail)
    began = time.monotonic()
    # Reads the trial before it writes again.
    storage.set_trial_state_values(record.number + 1, TrialState.FAIL)
    assert 0.05 * 8 <= waiting.waited <= time.monotonic() - began and left == [0]
    assert [record.state for record in ledger.records("focal")] == ["failed"]
    assert "; waiting (0 s): the connection is refused. Start the server" in str(lines[0])


def test_trials_are_read_once_and_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against what the study's folder says: of ten thousand trials each reading takes seconds."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    told(ledger_of(tmp_path, url), 3)
    for number in range(3):
        attempt_directory(trial_directory(tmp_path, "focal", number), 1).mkdir(parents=True)
    reads: list[int] = []
    whole = Database._get_trials
    monkeypatch.setattr(
        Database, "_get_trials", lambda *of, **how: reads.append(1) or whole(*of, **how)
    )
    checks: list[int] = []
    for module in (ledger_module, reader_module):
        monkeypatch.setattr(module, "check_trial", lambda *of: checks.append(1))
    traces = traces_of(tmp_path, url, "digits", "one", ["focal"], True)
    found = LedgerReader(tmp_path, url, "digits", ["focal"], traces).records()
    assert (len(found), len(reads), len(checks)) == (3, 1, 3)
    ledger = ledger_of(tmp_path, url)
    assert (len(ledger.records("focal")), len(checks)) == (3, 6)
    attempt_directory(trial_directory(tmp_path, "focal", 4), 1).mkdir(parents=True)
    with pytest.raises(LedgerError, match="has no focal/0004"):
        traces = traces_of(tmp_path, url, "digits", "one", ["focal"], True)
        LedgerReader(tmp_path, url, "digits", ["focal"], traces).storage()


def test_patience_ends(database: str, tmp_path: Path, postgres: Postgres) -> None:
    waiting = Waiting(patience=0.3)
    ledger = ledger_of(tmp_path, database, None, waiting)
    postgres.stop()
    try:
        with pytest.raises(
            LedgerUnavailable, match="has not answered for 0 minutes: the connection is refused"
        ):
            ledger.note("focal", "said", 1)
        waiting.patience, waiting.stopped = 600.0, lambda: "SIGTERM"
        began = time.monotonic()
        with pytest.raises(LedgerUnavailable, match="stopped by SIGTERM"):
            ledger.note("focal", "said", 1)
        assert time.monotonic() - began < 60
    finally:
        postgres.start()
    ledger.note("focal", "said", 2)


# ---- what is wrong, in one line ------------------------------------------------------------------


def urls(server: Postgres) -> Iterator[tuple[str, str]]:
    yield server.url_of(password="rotated"), "the password or user is refused"
    yield server.url_of(user="nobody"), "the password or user is refused"
    yield server.url_of(database="typo"), "there is no such database"
    yield server.url.replace(f":{server.port}/", ":1/"), "the connection is refused"
    yield server.url.replace("127.0.0.1", "no-such-host.invalid"), "the host is unknown"
    yield server.url.replace("postgresql:", "postgres:"), "no such kind of database"
    yield server.url.replace("postgresql:", "oracle:"), "no such kind of database"
    yield server.url.replace(f":{server.port}/", ":port/"), "this is not the URL of a database"


def test_causes_are_named(postgres: Postgres, tmp_path: Path) -> None:
    for url, cause in urls(postgres):
        for act in (lambda lock: lock.__enter__(), lambda lock: read_database(url)):  # noqa: B023
            with pytest.raises(LedgerError) as refused:
                act(driver_lock(tmp_path, url))
            said = str(refused.value)
            assert cause in said, f"{url}: {said}"
            # Exit code 75: a server that is away may be back, a mistake stays one.
            assert isinstance(refused.value, LedgerUnavailable) == ("refused. Start" in said)
            assert (
                "\n" not in said
                and "pass:" not in said
                and "pass%3A" not in said
                and "rotated" not in said
            )


def test_not_every_value_error_is_of_the_url() -> None:
    said = cause_of(ValueError("invalid isoformat string"), "postgresql://maria@127.0.0.1/ledgers")
    assert said == "invalid isoformat string"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"pip install 'calstudy\[postgres\]'"):
        driver_lock(tmp_path, "postgresql://maria@127.0.0.1/ledgers").__enter__()


def test_a_password_from_the_environment_or_a_file(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, file = postgres.url_of(password=None), tmp_path / "pgpass"
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with driver_lock(tmp_path, url):
        assert read_database(url) is None
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSFILE", str(file))
    with pytest.raises(LedgerError, match="the password or user is refused"):
        driver_lock(tmp_path, url).__enter__()
    escaped = PASSWORD.replace(":", r"\:")
    file.write_text(f"127.0.0.1:{postgres.port}:*:{USER}:{escaped}\n")
    file.chmod(0o600)
    with driver_lock(tmp_path, url):
        assert read_database(url) is None


def test_no_right_to_create_tables(postgres: Postgres, tmp_path: Path) -> None:
    postgres.query("CREATE DATABASE foreign_one", database="postgres")
    url = postgres.url_of(database="foreign_one")
    with pytest.raises(LedgerError, match="its user may not do this"):
        ledger_of(tmp_path, url)


def test_reading_creates_nothing(database: str, tmp_path: Path, postgres: Postgres) -> None:
    assert LedgerReader(tmp_path, database, "digits", ["focal"]).records() == Trials({"focal": []})
    name = database.rpartition("/")[2]
    assert (
        postgres.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", database=name) == []
    )
    assert name != DATABASE


def test_deleting_a_study_makes_no_tables_and_writes_under_its_lock(
    storages: tuple[Path, Path], database: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"name": "digits", "ledger": database, "methods": [{"label": "focal"}]}
    study = Study(storages[0], plain, Recorded(id="one"))
    (storages[0] / "study.yaml").touch()
    remove(study)
    name = database.rpartition("/")[2]
    assert (
        postgres.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", database=name) == []
    )

    told(ledger_of(storages[1], database), 1)
    storages[0].mkdir()
    (storages[0] / "study.yaml").touch()
    locks: list[Any] = []
    opened = ledger_module.open_database
    monkeypatch.setattr(
        ledger_module, "open_database", lambda *of: locks.append(of[1]) or opened(*of)
    )
    remove(study)
    assert len(locks) == 1 and isinstance(locks[0], DatabaseLock)
    assert postgres.query("SELECT count(*) FROM trials", database=name) == [(0,)]
