"""Whole studies with their ledger in a real PostgreSQL: restarted under way, its
password changed, misspelt."""

from pathlib import Path

import pytest
import yaml

from benchmarks.chaos.postgres import PASSWORD, USER, Postgres
from study.store.database_lock import is_held
from tests.patience import patient, wait_until
from tests.study.command_line import here, here_json, start, write_spec
from tests.study.counting import counted_once

pytestmark = [pytest.mark.slow, pytest.mark.platform]


def one_line(shown: str, *parts: str) -> None:
    """It names its cause, in one line without secrets."""
    assert all(part in shown for part in parts), shown
    assert shown.count("\n") == 1 and "Traceback" not in shown, shown
    assert PASSWORD not in shown and "%3A" not in shown and "rotated" not in shown, shown


def test_a_restart_and_a_dropped_connection_end_no_study(
    tmp_path: Path, database: str, postgres: Postgres
) -> None:
    spec, name = (
        write_spec(tmp_path / "small.yaml", ledger=database, epochs=30, trials=5),
        database.rpartition("/")[2],
    )

    def complete() -> int:
        if not postgres.query("SELECT 1 FROM pg_tables WHERE tablename = 'trials'", database=name):
            return 0
        return int(
            postgres.query("SELECT count(*) FROM trials WHERE state = 'COMPLETE'", database=name)[
                0
            ][0]
        )

    driver = start("run", spec, "--storage", tmp_path)
    wait_until(lambda: is_held(database, "small"))
    (tmp_path / "other").mkdir()  # while its Ray starts, so that few trials outlast all this
    refused = here("run", spec, "--storage", tmp_path / "other", check=2)
    one_line(refused, f"pid {driver.pid} on", f"PostgreSQL at 127.0.0.1:{postgres.port}/{name}")
    wait_until(lambda: complete() >= 1)
    assert postgres.drop_connections(name) >= 1
    wait_until(lambda: complete() >= 2)
    postgres.stop("immediate")
    assert driver.stdout is not None
    waits = next((line for line in driver.stdout if "does not answer; waiting (0 s)" in line), "")
    postgres.start()
    shown = driver.communicate(timeout=patient(240))[0]
    assert driver.returncode == 0 and "Traceback" not in shown, shown
    assert waits and "the ledger answers again." in shown
    counted_once(tmp_path, 10)


def test_a_changed_password_and_a_misspelt_url_lock_no_study(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.create_database("moving")

    def run(ledger: str, check: int = 0, trials: int = 1) -> str:
        spec = write_spec(
            tmp_path / "small.yaml", ledger=ledger, methods=["focal"], epochs=1, trials=trials
        )
        return here("run", spec, "--storage", tmp_path, check=check)

    # Before any trial.
    one_line(run(url.replace("moving", "movign"), check=2), "there is no such database")
    run(url)
    counted_once(tmp_path, 1)

    # Of a study with trials: refused in one line, and nothing is locked.
    one_line(
        run(url.replace("moving", "movign"), 2),
        "there is no such database",
        "study.yaml names postgresql://127.",
    )
    other = postgres.create_database("empty")
    one_line(run(other, 2), "/empty has no record of it", "/moving")
    assert (
        postgres.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", database="empty")
        == []
    )
    run(url, trials=2)

    # The password changes.
    postgres.query(f"ALTER ROLE {USER} PASSWORD 'rotated'")
    try:
        for words in (("status", "small"), ("audit", "small")):
            one_line(
                here(*words, "--storage", tmp_path, check=2),
                "the password or user is refused",
                "PGPASSWORD",
            )
        one_line(run(url, 2), "the password or user is refused")
        literal = postgres.url_of(password="rotated", database="moving")
        one_line(run(literal, 2), "small.yaml: ledger: postgresql://127.", "PGPASSWORD")
        monkeypatch.setenv("PGPASSWORD", "rotated")
        run(url, trials=3)
        assert (
            here_json("status", "small", "--storage", tmp_path)["methods"]["focal"]["complete"] == 3
        )

        other = url.replace("127.0.0.1", "localhost")  # the same server
        run(other, trials=4)
        assert yaml.safe_load((tmp_path / "small" / "study.yaml").read_text())["ledger"] == other
        counted_once(tmp_path, 4)
        here("delete", "small", "--yes", "--storage", tmp_path)
        assert postgres.query("SELECT count(*) FROM trials", database="moving") == [(0,)]
    finally:
        postgres.query(f"ALTER ROLE {USER} PASSWORD '{PASSWORD}'")


def test_another_database_with_a_copy_of_older_trials_is_refused(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.create_database("original")
    words = {"methods": ["focal"], "epochs": 1}
    spec = write_spec(tmp_path / "small.yaml", ledger=url, trials=1, **words)
    here("run", spec, "--storage", tmp_path)
    postgres.drop_connections("original")
    postgres.query(f"CREATE DATABASE copied TEMPLATE original OWNER {USER}", database="postgres")
    write_spec(tmp_path / "small.yaml", ledger=url, trials=2, **words)
    here("run", spec, "--storage", tmp_path)
    write_spec(tmp_path / "small.yaml", ledger=url.replace("original", "copied"), trials=2, **words)
    one_line(here("run", spec, "--storage", tmp_path, check=2), "/copied has no focal/0001")


def test_doctor_checks_the_ledger(
    tmp_path: Path, postgres: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def findings(url: str, check: int) -> list[dict[str, str]]:
        spec = write_spec(
            tmp_path / "small.yaml", ledger=url, methods=["focal"], epochs=1, trials=1
        )
        found = here_json("doctor", spec, "--storage", tmp_path) if check == 0 else None
        shown = here("doctor", spec, "--storage", tmp_path, check=check)
        assert PASSWORD not in shown and "Traceback" not in shown
        return (
            [{"state": "failed", "text": shown}]
            if found is None
            else [finding for finding in found["findings"] if finding["check"] == "ledger"]
        )

    shown_at = f"PostgreSQL at 127.0.0.1:{postgres.port}/"
    (fine,) = findings(database, 0)
    assert fine["state"] == "ok" and fine["text"].startswith(shown_at)
    name = database.rpartition("/")[2]
    assert (
        postgres.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", database=name) == []
    )
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSWORD", "wrong")
        assert "the password or user is refused" in findings(database, 1)[0]["text"]
        patch.delenv("PGPASSWORD")
        patch.setenv("PGPASSFILE", str(tmp_path / "none"))
        said = findings(database, 1)[0]["text"]
        assert "the password or user is refused" in said
        assert f"there is no file {tmp_path}/none. Write it there" in said
    postgres.query("CREATE DATABASE not_ours", database="postgres")
    assert "may not create tables" in findings(postgres.url_of(database="not_ours"), 1)[0]["text"]
    here("run", tmp_path / "small.yaml", "--storage", tmp_path, check=2)  # as doctor said
    findings(database, 0)
    here("run", tmp_path / "small.yaml", "--storage", tmp_path)
    findings(database, 0)
    postgres.query(f"REVOKE INSERT ON trials FROM {USER}", database=name)
    assert "may not write" in findings(database, 1)[0]["text"]
