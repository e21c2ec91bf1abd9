"""The audit against a study with one thing broken at a time; beside a driver at work."""

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from optuna import load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from search_spaces import strict_yaml
from study.audit.audit import audit
from study.audit.result import AuditReport
from study.cli import main
from study.schema.uris import public_uri
from study.store.driver_lock import driver_lock
from study.store.study import open_study
from tests.patience import wait_until
from tests.study.command_line import here, here_json, kill, start, write_spec
from tests.study.tracking.line import free_port
from tests.study.trained import digits

CHECKS = [
    "identity",
    "ledger",
    "files",
    "results",
    "mlflow",
    "openings",
]


@pytest.fixture(scope="module")
def finished() -> Path:
    """A storage with a study of two methods, two trials each, two epochs each: leave it whole."""
    return digits()


@pytest.fixture
def storage(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALSTUDY_STORAGE", str(tmp_path))
    shutil.copytree(finished / "small", tmp_path / "small")
    shutil.copy(finished / "mlflow.db", tmp_path)
    return tmp_path


def audited(storage: Path, uri: str | None = None) -> AuditReport:
    study = open_study("small", str(storage))
    return audit(study, study.tracking(uri))


def off(report: AuditReport) -> dict[str, list[str]]:
    """{check: the names of its offenders}, of the checks that have any."""
    return {
        check.name: [found.name for found in check.offenders]
        for check in report.checks
        if check.offenders
    }


def pending_in(report: AuditReport) -> dict[str, list[str]]:
    """As `off`, of what the driver or the next run resolves."""
    return {
        check.name: sorted(found.name for found in check.pending)
        for check in report.checks
        if check.pending
    }


def sql(storage: Path, *statements: str) -> None:
    with closing(sqlite3.connect(storage / "mlflow.db")) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


RUN = "(select run_uuid from tags where key = 'calstudy.trial' and value = 'focal/0001')"
PARENT = f"(select value from tags where key = 'mlflow.parentRunId' and run_uuid = {RUN})"


def attempt(storage: Path, trial: str = "focal/0001") -> Path:
    return storage / "small" / "trials" / trial / "attempt-1"


def rewrite(file: Path, change: Callable[[str], str]) -> None:
    before = file.read_text()
    file.write_text(change(before))
    assert file.read_text() != before


def edit_outcome(storage: Path, **changes: Any) -> None:
    """Change what the ledger says of focal/0001."""
    log = storage / "small" / "ledger.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = [line for line in lines if "outcome" in line.get("user_attr", {})]
    digests = open_study("small", str(storage)).records().of("focal")[1].digests
    (outcome,) = [
        line["user_attr"]["outcome"]
        for line in told
        if line["user_attr"]["outcome"]["digests"] == digests
    ]
    outcome["metrics"] |= changes
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_yaml(storage: Path, **changes: Any) -> None:
    file = storage / "small" / "study.yaml"
    file.write_text(strict_yaml.dump({**strict_yaml.read(file), **changes}))


def optuna_study(storage: Path, label: str = "focal") -> Any:
    journal = JournalStorage(JournalFileBackend(str(storage / "small" / "ledger.log")))
    return load_study(study_name=f"small/{label}", storage=journal)


# ---- a clean one ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_finished_study_is_clean_and_nothing_is_written(storage: Path) -> None:
    content = {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()}
    report = audited(storage)
    assert [check.name for check in report.checks] == CHECKS
    assert off(report) == {} and report.clean
    counted = {check.name: check.counted for check in report.checks}
    expected = [2, 4, 12, 4, 4, 0]  # of each trial 3 files
    assert counted == dict(zip(CHECKS, expected, strict=True))
    assert (report.planned, report.lost, report.duplicated) == (4, 0, 0)
    assert report.note is not None and "is not the study's home" in report.note
    assert {path: path.read_bytes() for path in storage.rglob("*") if path.is_file()} == content


@pytest.mark.slow
def test_the_command(finished: Path, storage: Path) -> None:
    shown = here("audit", "small", "--storage", finished)
    assert (
        "small: clean; 4 trials planned: 4 complete; 0 lost, 0 duplicated" in shown
        and "note" not in shown
    )
    shutil.rmtree(storage / "small" / "trials" / "focal" / "0001")
    shown = here("audit", "small", "--storage", storage, check=1)
    assert "focal/0001: history.json is missing: restore it from a backup" in shown
    found = json.loads(here("audit", "small", "--storage", storage, "--json", check=1))
    assert not found["clean"] and found["study"] == "small"
    (files,) = [check for check in found["checks"] if check["offenders"]]
    assert (files["name"], files["counted"]) == ("files", 9)
    assert {offender["name"] for offender in files["offenders"]} == {"focal/0001"}


def newer_ledger(storage: Path) -> list[str]:
    """Written by a later version of ours."""
    optuna_study(storage).set_user_attr("calstudy", {"version": 99, "id": "any", "label": "focal"})
    return ["small"]


BAD_INPUT: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "no such study": (lambda storage: ["smal"], "smal: no study at"),
    "a newer ledger": (
        newer_ledger,
        "ledger: 'small/focal' was written by a newer calstudy. Upgrade to read it.",
    ),
    "a relative database": (
        lambda storage: ["small", "--tracking", "sqlite:///mlflow.db"],
        "--tracking: 'sqlite:///mlflow.db' is not an absolute path, which needs four slashes.",
    ),
    "no number": (
        lambda storage: ["small", "--histories", "few"],
        "calstudy: Invalid value for '--histories': 'few' is not 'all'.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("bad", BAD_INPUT)
def test_bad_input_is_one_line(storage: Path, capsys: pytest.CaptureFixture[str], bad: str) -> None:
    words, said = BAD_INPUT[bad]
    with pytest.raises(SystemExit) as ended:
        main(["audit", *words(storage), "--storage", str(storage)])
    shown, errors = capsys.readouterr()
    assert (ended.value.code, shown, errors.count("\n")) == (2, "", 1) and errors.startswith(said)


# ---- one thing broken ----------------------------------------------------------------------------

TWINS_TRIAL = "run_uuid = 'twin' and key = 'calstudy.trial'"
SECOND_RUN = [
    (
        "insert into runs (run_uuid, name, experiment_id, status, lifecycle_stage, start_time,"
        " artifact_uri, user_id, source_type, source_name, entry_point_name, source_version)"
        " select 'twin', name, experiment_id, status, lifecycle_stage, start_time, artifact_uri,"
        " user_id, source_type, source_name, entry_point_name, source_version from runs where"
        f" run_uuid = {RUN}"
    ),
    *(
        f"insert into {table} ({keys}, run_uuid) select {keys}, 'twin' from {table} where run_uuid"
        f" = {RUN}"
        for table, keys in (
            ("metrics", "key, value, timestamp, step, is_nan"),
            ("latest_metrics", "key, value, timestamp, step, is_nan"),
            ("tags", "key, value"),
        )
    ),
]


def flip_a_byte(storage: Path) -> None:
    file = attempt(storage) / "predictions.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def lose_an_epoch_of_the_history(storage: Path) -> None:
    """And tell the ledger so: only what the history says is off then."""
    file = attempt(storage) / "history.json"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_text(json.dumps([json.loads(file.read_text())[1]] * 2))
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite(storage / "small" / "ledger.log", lambda text: text.replace(digest, found))


def add_a_trial(storage: Path) -> None:
    """The copy of another."""
    study = optuna_study(storage)
    study.add_trial(study.trials[1])


BROKEN: dict[str, tuple[Callable[[Path], Any], dict[str, list[str]], str]] = {
    "a flipped byte": (
        flip_a_byte,
        {"files": ["focal/0001"]},
        "predictions.npz has changed (its digest differs from the ledger)",
    ),
    "a directory removed": (
        lambda storage: shutil.rmtree(attempt(storage).parent),
        {"files": ["focal/0001"] * 3},
        "is missing",
    ),
    "a stray directory": (
        lambda storage: shutil.copytree(
            attempt(storage).parent, storage / "small/trials/other/0007"
        ),
        {"files": ["other/0007"]},
        "not in the ledger: remove",
    ),
    "an attempt too many": (
        lambda storage: shutil.copytree(attempt(storage), attempt(storage).parent / "attempt-2"),
        {"files": ["focal/0001"]},
        "attempt 2 is newer than the counted one",
    ),
    "a checkpoint left": (
        lambda storage: (attempt(storage) / "last.pt").write_bytes(b""),
        {"files": ["focal/0001"]},
        "is finished but still has attempt-1/last.pt: remove it with `calstudy run small`",
    ),
    "a run deleted": (
        lambda storage: sql(
            storage, f"update runs set lifecycle_stage = 'deleted' where run_uuid = {RUN}"
        ),
        {"mlflow": ["focal/0001"]},
        "is not in MLflow: upload it with `calstudy sync small`",
    ),
    "all runs deleted": (
        lambda storage: sql(storage, "update runs set lifecycle_stage = 'deleted'"),
        {"mlflow": ["tracking"]},
        "no run of this study",
    ),
    "a second run": (
        lambda storage: sql(storage, *SECOND_RUN),
        {"mlflow": ["focal/0001"]},
        "has 2 runs in MLflow",
    ),
    "a run of no trial": (
        lambda storage: sql(
            storage, *SECOND_RUN, f"update tags set value = 'focal/0007' where {TWINS_TRIAL}"
        ),
        {"mlflow": ["focal/0007"]},
        "is not in the ledger: delete that run",
    ),
    "a run that goes on": (
        lambda storage: sql(storage, f"update runs set status = 'RUNNING' where run_uuid = {RUN}"),
        {"mlflow": ["focal/0001"]},
        "is RUNNING, but the study is not running: correct it with `calstudy sync small`",
    ),
    "a parent that goes on": (
        lambda storage: sql(
            storage, f"update runs set status = 'RUNNING' where run_uuid = {PARENT}"
        ),
        {"mlflow": ["small"]},
        "its MLflow run is RUNNING",
    ),
    "a parent that was stopped": (
        lambda storage: sql(
            storage, f"update runs set status = 'KILLED' where run_uuid = {PARENT}"
        ),
        {"mlflow": ["small"]},
        "is KILLED, not FINISHED",
    ),
    "a parent too many": (
        lambda storage: sql(storage, *SECOND_RUN, f"delete from tags where {TWINS_TRIAL}"),
        {"mlflow": ["small"]},
        "has 2 parent runs in MLflow",
    ),
    "another status": (
        lambda storage: sql(storage, f"update runs set status = 'FAILED' where run_uuid = {RUN}"),
        {"mlflow": ["focal/0001"]},
        (
            "its status is FAILED in MLflow, FINISHED in the ledger: delete its MLflow run, then"
            " run `calstudy sync small`"
        ),
    ),
    "another attempt": (
        lambda storage: sql(
            storage,
            f"update tags set value = 2 where key = 'calstudy.attempt' and run_uuid = {RUN}",
        ),
        {"mlflow": ["focal/0001"]},
        "its attempt is 2 in MLflow, 1 in the ledger",
    ),
    "another metric": (
        lambda storage: sql(
            storage,
            "update latest_metrics set value = 0.5 where key = 'final/ts_nll' and run_uuid ="
            f" {RUN}",
        ),
        {"mlflow": ["focal/0001"]},
        "its final ts_nll is 0.5 in MLflow, 0.",
    ),
    "a step twice": (
        lambda storage: sql(
            storage,
            "insert into metrics select key, value, timestamp + 1, run_uuid, step, is_nan from"
            f" metrics where key = 'nll' and step = 2 and run_uuid = {RUN}",
        ),
        {"mlflow": ["focal/0001"]},
        "MLflow has duplicate steps of nll",
    ),
    "a step lost": (
        lambda storage: sql(
            storage, f"delete from metrics where key = 'nll' and step = 1 and run_uuid = {RUN}"
        ),
        {"mlflow": ["focal/0001"]},
        "MLflow steps differ from the 2 epochs for nll",
    ),
    "an epoch twice": (
        lose_an_epoch_of_the_history,
        {"files": ["focal/0001"]},
        "history.json has the epochs 2, 2",
    ),
    "an outcome edited": (
        lambda storage: edit_outcome(storage, accuracy=0.999),
        {"results": ["focal/0001"] * 2, "mlflow": ["focal/0001"]},
        "accuracy is 0.999 in the ledger, 0.9",
    ),
    "another value than the sampler's": (
        lambda storage: rewrite(
            storage / "small" / "ledger.log",
            lambda log: re.sub(r'"values":\[0\.\d+,', '"values":[0.25,', log, count=1),
        ),
        {"results": [None]},
        "the sampler has [0.25,",
    ),
    "a trial twice": (
        add_a_trial,
        {
            "ledger": ["focal/0002"],
            "mlflow": ["focal/0002"],
            "files": ["focal/0002"] * 3,
        },
        "only 2 trials of focal were requested",
    ),
    "a trial too many, cut short": (
        lambda storage: optuna_study(storage).ask(),
        {"ledger": ["focal/0002"]},
        "only 2 trials of focal were requested",
    ),
    "another meaning": (
        lambda storage: edit_yaml(storage, batch_size=32),
        {"identity": ["study.yaml"]},
        "batch_size: was 64, is 32",
    ),
    "another study's ledger": (
        lambda storage: optuna_study(storage).set_user_attr(
            "calstudy", {"version": 1, "id": "other"}
        ),
        {"identity": ["ledger of focal"]},
        "belongs to study other",
    ),
    "the test split opened": (
        lambda storage: optuna_study(storage).set_user_attr("openings", [{"number": 1}]),
        {"openings": ["ledger of focal"]},
        'the test split was opened ({"number": 1}), but not by a confirm run',
    ),
    "no database": (
        lambda storage: (storage / "mlflow.db").unlink(),
        {"mlflow": ["tracking"]},
        "there is no such database: make MLflow reachable",
    ),
    "a database of nothing": (
        lambda storage: (storage / "mlflow.db").write_bytes(b""),
        {"mlflow": ["tracking"]},
        "no such table",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_is_named(storage: Path, broken: str) -> None:
    """And nothing else is."""
    break_it, names, words = BROKEN[broken]
    break_it(storage)
    there = (storage / "mlflow.db").exists()
    report = audited(storage)
    found = off(report)
    if names == {"results": [None]}:  # whichever trial it was
        assert [len(of_check) for of_check in found.values()] == [1] and "results" in found
    else:
        assert found == names
    assert words in "\n".join(
        str(offender) for check in report.checks for offender in check.offenders
    )
    assert (storage / "mlflow.db").exists() == there
    twice = {"a second run": 1, "a trial twice": 1, "a trial too many, cut short": 1}.get(broken, 0)
    assert (report.clean, report.duplicated) == (False, twice)
    assert report.lost == {"a stray directory": 1}.get(broken, 0)


# ---- a driver at work, a server away -------------------------------------------------------------


@pytest.mark.slow
def test_what_a_driver_or_the_next_run_has_still_to_do_is_pending(storage: Path) -> None:
    """A kill leaves runs open, an upload undone, a checkpoint: problems only of a study
    with nothing left to run."""
    sql(storage, f"update runs set lifecycle_stage = 'deleted' where run_uuid = {RUN}")
    sql(storage, "update runs set status = 'RUNNING' where name = 'small' or name = 'focal/0000'")
    (attempt(storage) / "last.pt").write_bytes(b"")
    left = {"files": ["focal/0001"], "mlflow": ["focal/0001"]}
    going_on = ["focal/0000", "focal/0001", "small"]
    found = {name: sorted(of) for name, of in off(audited(storage)).items()}
    assert found == {**left, "mlflow": going_on}
    edit_yaml(storage, trials=3)
    report = audited(storage)
    assert not report.driver and report.clean and (report.planned, report.lost) == (6, 0)
    assert pending_in(report) == {**left, "mlflow": going_on}
    with driver_lock(storage / "small"):
        report = audited(storage)
    assert report.driver and report.clean and (report.planned, report.lost) == (6, 0)
    assert pending_in(report) == left


@pytest.mark.slow
def test_a_stopped_study_is_clean_and_the_audit_says_what_is_left(storage: Path) -> None:
    """One trial begun, one proposed, four not: nothing of it is lost. What is
    broken is still a problem."""
    edit_yaml(storage, trials=5)
    for begun in (True, False):
        number = optuna_study(storage).ask().number
        if begun:
            (storage / "small" / "trials" / "focal" / f"{number:04d}" / "attempt-1").mkdir(
                parents=True
            )
            (attempt(storage, f"focal/{number:04d}") / "log").write_text("process 1 on node\n")
    shown = here("audit", "small", "--storage", storage)
    assert (
        "the study is not running; 1 interrupted and 5 to do. Resume: calstudy run small\n" in shown
    )
    assert (
        "small: clean; 10 trials planned: 4 complete, 1 interrupted, 5 to do; 0 lost, 0 duplicated"
        in shown
    )
    flip_a_byte(storage)
    report = audited(storage)
    assert off(report) == {"files": ["focal/0001"]} and (report.states["to_do"], report.lost) == (
        5,
        0,
    )


@pytest.mark.slow
@pytest.mark.platform
def test_beside_a_driver_then_killed_then_whole(tmp_path: Path) -> None:
    """No false alarm while it works; off once it is dead; clean when it has gone on to the end."""
    spec = write_spec(tmp_path / "small.yaml", epochs=40, trials=3, checkpoint_seconds=0.2)
    driver = start("run", spec, "--storage", tmp_path)
    directory = tmp_path / "small"
    wait_until(lambda: list(directory.glob("trials/*/*/attempt-1/model.pt")))
    audits, running = 0, 0
    while len(list(directory.glob("trials/*/*/attempt-1/model.pt"))) < 2 or not running:
        report = audited(tmp_path)
        assert report.driver and off(report) == {}
        audits, running = audits + 1, running + report.states["running"]
    assert audits
    # Between two trials nothing would be interrupted.
    wait_until(lambda: list(directory.glob("trials/*/*/attempt-1/last.pt")), longest=0.01)
    kill(driver)
    report = audited(tmp_path)
    assert (
        off(report) == {}
        and 0 < report.states["interrupted"] <= 2
        and (report.lost, report.duplicated) == (0, 0)
    )
    status = here_json("status", "small", "--storage", tmp_path)["methods"]
    assert report.states == {
        state: sum(row[state] for row in status.values()) for state in report.states
    }
    here("run", spec, "--storage", tmp_path)
    report = audited(tmp_path)
    assert off(report) == {} and (report.planned, report.lost, report.duplicated) == (6, 0, 0)


@pytest.mark.slow
def test_a_server_that_is_away_is_one_offender(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"http://maria:secret@127.0.0.1:{free_port()}"
    monkeypatch.setenv("MY_TRACKING", uri)
    report = audited(storage, "MY_TRACKING")
    ((only,),) = [check.offenders for check in report.checks if check.offenders]
    assert (only.name, only.problem) == (
        "tracking",
        f"MLflow at {public_uri(uri)}: Connection refused",
    )
