"""The ledger under what a kill leaves: torn lines, half-told trials."""

import multiprocessing
import os
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution

from study.schema.errors import LedgerError
from study.schema.objective import Objective
from study.schema.uris import public_uri
from study.store.driver_lock import driver_is_alive, driver_lock
from study.store.journal import open_journal
from study.store.ledger import Ledger, open_storage
from study.store.ledger_reader import LedgerReader
from tests.study.made import asked
from trainables.outputs.outcome import Outcome, OutcomeState

OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
SPACE = {
    "method.gamma": FloatDistribution(0, 5),
    "optimizer.lr": FloatDistribution(0.01, 0.5, log=True),
}


def opened(directory: Path, study_id: str = "one", **driver: str | None) -> Ledger:
    ledger = Ledger(open_storage(directory, None), "digits", study_id, **driver)
    ledger.open("focal", OBJECTIVES)
    return ledger


def ask(ledger: Ledger) -> Any:
    return asked(ledger, "focal", SPACE)


def complete(params: dict[str, float], attempt: int = 1) -> Outcome:
    """A made-up study: accuracy and ECE are smooth functions of the two parameters."""
    gamma, lr = params["method.gamma"], params["optimizer.lr"]
    metrics = {
        "accuracy": 0.9 - abs(lr - 0.1) - 0.01 * gamma,
        "ece": 0.02 + 0.01 * (gamma - 2) ** 2,
    }
    return Outcome(
        state="complete",
        metrics=metrics,
        attempt=attempt,
        seconds=1.5,
        digests={"model.pt": "ab"},
    )


def test_what_is_told_is_what_is_read(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    record = ask(ledger)
    assert (record.state, record.number, set(record.params)) == ("running", 0, set(SPACE))
    assert ledger.begin_attempt("focal", 0) == 1
    ledger.tell("focal", 0, complete(record.params), OBJECTIVES)
    (read,) = LedgerReader(tmp_path, None, "digits", ["focal"]).records().of("focal")
    assert (read.state, read.attempt, read.seconds, read.digests) == (
        "complete",
        1,
        1.5,
        {"model.pt": "ab"},
    )
    assert read.metrics == complete(record.params).metrics and read.params == record.params
    assert read.ended is not None and read.started is not None and read.ended >= read.started


def test_the_cluster_that_trained_last_is_known(tmp_path: Path) -> None:
    reader = LedgerReader(tmp_path, None, "digits", ["focal"])
    ask(opened(tmp_path))
    assert reader.records().address is None
    ask(opened(tmp_path, address="10.0.0.1:6379"))
    assert reader.records().address == "10.0.0.1:6379"
    assert reader.records().complete.under(["focal"]).address == "10.0.0.1:6379"
    ask(opened(tmp_path))  # such as one that only opens the test split
    assert reader.records().address == "10.0.0.1:6379"
    ask(opened(tmp_path, address=None))
    assert reader.records().address is None


@pytest.mark.parametrize("address", [7, ["a"], "10.0.0.1\n:6379", ""])
def test_an_address_that_is_none_names_no_cluster(tmp_path: Path, address: Any) -> None:
    ask(opened(tmp_path))
    study = optuna.load_study(study_name="digits/focal", storage=open_storage(tmp_path, None))
    study.set_user_attr("driver", {"number": 1, "address": address})
    assert LedgerReader(tmp_path, None, "digits", ["focal"]).records().address is None


def test_what_optuna_dashboard_shows_is_named(tmp_path: Path) -> None:
    ask(opened(tmp_path))
    study = optuna.load_study(study_name="digits/focal", storage=open_storage(tmp_path, None))
    assert study.metric_names == ["accuracy", "ece"]


def test_attempts_are_numbered_across_restarts(tmp_path: Path) -> None:
    ask(opened(tmp_path))
    assert [opened(tmp_path).begin_attempt("focal", 0) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_an_objective_that_is_no_number_is_a_failure(tmp_path: Path, value: float | None) -> None:
    ledger = opened(tmp_path)
    outcome = complete(ask(ledger).params)
    assert outcome.metrics is not None
    if value is None:
        del outcome.metrics["ece"]
    else:
        outcome.metrics["ece"] = value
    record = ledger.tell("focal", 0, outcome, OBJECTIVES)
    assert record.state == "failed" and "ece" in str(record.reason) and record.metrics == {}


@pytest.mark.parametrize("state", ["failed", "pruned"])
def test_a_trial_that_did_not_complete_has_a_reason_and_no_value(
    tmp_path: Path, state: OutcomeState
) -> None:
    ledger = opened(tmp_path)
    ask(ledger)
    outcome = Outcome(state=state, reason="loss is nan at epoch 3")
    record = ledger.tell("focal", 0, outcome, OBJECTIVES)
    assert (record.state, record.reason) == (state, "loss is nan at epoch 3")
    (trial,) = optuna.load_study(
        study_name="digits/focal", storage=open_storage(tmp_path, None)
    ).trials
    assert trial.values is None


def test_a_torn_last_line_is_cut_and_nothing_else(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.tell(
        "focal",
        ask(ledger).number,
        complete({"method.gamma": 1.0, "optimizer.lr": 0.1}),
        OBJECTIVES,
    )
    log = tmp_path / "ledger.log"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"op_code":4,"worker_id":"x","stu')
    assert "incomplete last line" in open_journal(log, create=False)[1][0]
    assert log.read_bytes() == whole
    again = opened(tmp_path)
    assert ask(again).number == 1 and len(again.records("focal")) == 2
    assert len(LedgerReader(tmp_path, None, "digits", ["focal"]).records().of("focal")) == 2


@pytest.mark.parametrize("content", [b"", b'{"op_code":0,"wor'])
def test_a_journal_without_one_whole_line_becomes_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ledger.log").write_bytes(content)
    open_journal(tmp_path / "ledger.log", create=False)
    assert (tmp_path / "ledger.log").read_bytes() == b""


def test_a_trial_is_asked_whole_or_not_at_all(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    before = (tmp_path / "ledger.log").read_bytes()
    expected = ask(ledger)
    lines = (tmp_path / "ledger.log").read_bytes()[len(before) :].splitlines(keepends=True)
    found = []
    for count in range(len(lines) + 1):  # a kill after each
        (tmp_path / f"{count}").mkdir()
        (tmp_path / f"{count}" / "ledger.log").write_bytes(before + b"".join(lines[:count]))
        found.append([record.params for record in opened(tmp_path / f"{count}").records("focal")])
    assert found[-1] == [expected.params] and not any(found[:-1]) and lines


def test_a_trial_that_only_waits_is_refused(tmp_path: Path) -> None:
    """A trial is recorded once it is asked, whole."""
    opened(tmp_path)
    study = optuna.load_study(study_name="digits/focal", storage=open_storage(tmp_path, None))
    study.enqueue_trial({"method.gamma": 3.0})
    for read in (opened, lambda _: LedgerReader(tmp_path, None, "digits", ["focal"]).records()):
        with pytest.raises(LedgerError, match="the state of focal/0000 is not as calstudy writes"):
            read(tmp_path)


def test_a_trial_told_by_half_is_finished_as_it_was_told(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    outcome = complete(ask(ledger).params)
    ledger.tell("focal", 0, outcome, OBJECTIVES)
    log = tmp_path / "ledger.log"
    # The line that sets the state.
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    again = opened(tmp_path)
    assert again.record("focal", 0).state == "running"
    again.finish_reported("focal", OBJECTIVES)
    assert (
        again.record("focal", 0).metrics == outcome.metrics
        and again.record("focal", 0).state == "complete"
    )


def test_objectives_may_change_until_a_first_trial_is_asked(tmp_path: Path) -> None:
    opened(tmp_path)
    ledger = Ledger(open_storage(tmp_path, None), "digits", "one")
    ledger.open("focal", OBJECTIVES[:1])
    study = optuna.load_study(study_name="digits/focal", storage=open_storage(tmp_path, None))
    assert len(study.directions) == 1 and ask(ledger).number == 0


def test_two_studies_on_one_journal_have_one_driver(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    shared = str(tmp_path / "shared.log")
    with driver_lock(tmp_path / "a", shared):
        with (
            pytest.raises(LedgerError, match="another calstudy process"),
            driver_lock(tmp_path / "b", shared),
        ):
            pass
        with driver_lock(tmp_path / "b", str(tmp_path / "own.log")):
            pass


def test_a_trial_whose_process_keeps_dying_is_given_up(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ask(ledger)
    assert [ledger.died("focal", 0, "process") for _ in range(3)] == [True, True, False]
    # A node that is taken away is not the trial's fault, and memory is tried once more.
    assert [ledger.died("focal", 0, "node") for _ in range(4)] == [True] * 4
    assert [ledger.died("focal", 0, "out_of_memory") for _ in range(2)] == [True, False]
    assert ledger.record("focal", 0).deaths == {"process": 3, "node": 4, "out_of_memory": 2}


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    assert not driver_is_alive(tmp_path)
    with driver_lock(tmp_path):
        assert driver_is_alive(tmp_path)
        with pytest.raises(LedgerError, match=f"pid {os.getpid()}"), driver_lock(tmp_path):
            pass
    assert not driver_is_alive(tmp_path)


def _hold(directory: Path, held: Any) -> None:
    with driver_lock(directory):
        held.set()
        held.wait()
        os.kill(os.getpid(), 9)


def test_a_killed_driver_leaves_no_lock(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held))
    process.start()
    held.wait()
    process.join()
    with driver_lock(tmp_path):
        pass


def test_another_studys_ledger_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, "one")
    with pytest.raises(LedgerError, match="another study"):
        opened(tmp_path, "two")


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    study = optuna.create_study(
        study_name="digits/focal", storage=open_storage(tmp_path, None), directions=["maximize"]
    )
    study.set_user_attr("calstudy", {"version": 99, "id": "one", "label": "focal"})
    with pytest.raises(LedgerError, match="newer"):
        Ledger(open_storage(tmp_path, None), "digits", "one").open("focal", OBJECTIVES[:1])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db:5432/optuna", "postgresql://db:5432/optuna"),
        ("https://me:secret@host/path?token=secret", "https://host/path"),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert public_uri(url) == shown
