"""`calstudy reproduce`: run again, with more seeds, and interrupted at any moment."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from study.audit.audit import audit
from study.commands import reproduce
from study.engine import confirm as confirming
from study.engine import reproduce as engine
from study.engine import run
from study.reproduction import reproduction
from study.schema.uris import TrackingError
from study.store.study import open_study
from tests.patience import patient, wait_until
from tests.study.command_line import here, here_apart, kill, start
from tests.study.counting import runs_of
from tests.study.reproduction.tables import (
    without_probe,
    write_guided_table,
    write_table,
)
from trainables.outputs.predictions import Predictions
from trainables.training.learner import Learner

pytestmark = [pytest.mark.slow, pytest.mark.platform]


@pytest.fixture(autouse=True)
def no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """But in test_a_guided_table_is_probed."""
    without_probe(monkeypatch)


def reproduced(table: Path, *words: object) -> str:
    """The table on standard output."""
    return here_apart("reproduce", table, "--storage", table.parent, *words)[0]


def attempts(storage: Path) -> set[str]:
    return {str(found) for found in storage.glob("*/trials/*/*/attempt-*")}


def assert_clean(storage: Path, name: str, trials: int, openings: int | None) -> None:
    """Every trial once, in the ledger and in MLflow; the test split opened so often."""
    study = open_study(name, str(storage))
    records = study.records()
    assert len(records) == trials and {record.state for record in records} == {"complete"}
    runs = runs_of(storage, name)
    tags = sorted(run.data.tags["calstudy.trial"] for run in runs)
    assert tags == sorted(record.name for record in records)
    tested = [run for run in runs if "test/ece" in run.data.metrics]
    assert len(tested) == (0 if openings == 0 else trials)
    report = audit(study, study.tracking(None))
    assert [str(found) for check in report.checks for found in check.offenders] == []
    assert report.duplicated == 0
    counts = {check.name: check.counted for check in report.checks}
    assert openings is None or counts.get("openings", 0) == openings


# ---- once more -----------------------------------------------------------------------------------


def test_a_second_call_trains_nothing_and_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table(tmp_path)
    first = reproduced(table)
    trained = attempts(tmp_path)
    assert len(trained) == 6
    assert_clean(tmp_path, "mini", trials=6, openings=6)
    plain = reproduced(table, "--json")

    def never(*_: object) -> Any:
        raise AssertionError("it trains or opens once more")

    monkeypatch.setattr(Learner, "_row", never)
    monkeypatch.setattr(confirming.ModelEvaluator, "on_test", never)
    assert reproduced(table) == first
    assert reproduced(table, "--json") == plain
    assert attempts(tmp_path) == trained
    assert_clean(tmp_path, "mini", trials=6, openings=6)


def test_more_seeds_are_added_and_counted(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    assert "added after" not in reproduced(table)
    trained = attempts(tmp_path)
    shown = reproduced(table, "--seeds", 5)
    assert "2 of 5 seeds added after test results were seen." in shown
    assert trained < attempts(tmp_path)
    assert_clean(tmp_path, "mini", trials=10, openings=10)
    assert reproduced(table, "--seeds", 4) == shown  # never fewer than there are
    assert reproduced(table) == shown


def test_seeds_are_those_of_the_study_with_so_many(tmp_path: Path) -> None:
    """Three, then two more, measure what five at once do."""
    added = tmp_path / "added"
    added.mkdir()
    reproduced(write_table(added))
    later = json.loads(reproduced(write_table(added), "--seeds", 5, "--json"))
    at_once = json.loads(reproduced(write_table(tmp_path), "--seeds", 5, "--json"))
    assert later["cells"] == at_once["cells"] and later["claims"] == at_once["claims"]


def test_a_guided_table_is_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table = write_guided_table(tmp_path)
    _, said = here_apart("reproduce", table, "--seeds", 1, "--storage", tmp_path)
    assert "target: 1 method, 1 seed each" in said and "guided: 2 methods, 1 seed each" in said
    assert said.count("CPU time: about") == 2
    assert said.index("guided: 2 methods") > said.index("target: 1 of 1 trials to run")


def test_what_mlflow_lacks_is_written_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is shown, and the exit code says that something is left."""
    table = write_guided_table(tmp_path)

    def refuses(*_: object) -> None:
        raise TrackingError("the server refuses", "Start it.")

    with monkeypatch.context() as patch:
        patch.setattr(confirming, "sync", refuses)
        shown = here("reproduce", table, "--seeds", 1, "--storage", tmp_path, check=75)
    assert "guided is not whole in MLflow yet (the server refuses); run the same command" in shown
    again = reproduced(table, "--seeds", 1)
    assert again in shown
    assert_clean(tmp_path, "guided", trials=2, openings=2)


# ---- interrupted ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The guided table without an interruption, of two seeds."""
    with pytest.MonkeyPatch.context() as patch:
        without_probe(patch)
        folder = tmp_path_factory.mktemp("whole")
        yield reproduced(write_guided_table(folder), "--seeds", 2)


def dies(call: int = 1) -> Any:
    """What makes a function end in an interruption at its n-th call."""

    def of(function: Any) -> Any:
        calls = []

        def dying(*given: Any, **named: Any) -> Any:
            calls.append(given)
            if len(calls) == call:
                raise KeyboardInterrupt
            return function(*given, **named)

        return dying

    return of


MOMENTS = {
    "before the ledger of the target": (run, "_open_ledger", 1),
    "in the target's training": (Learner, "_row", 2),
    "between the studies": (engine, "tracked", 1),
    "before the ledger of the guided": (run, "_open_ledger", 2),
    "in the guided's training": (Learner, "_row", 6),
    "before the first opening": (confirming, "measure", 1),
    "between an opening and its file": (Predictions, "save", 7),
    "between an opening and its result": (confirming.TestAccessLog, "record", 2),
    "before MLflow has the tests": (confirming, "sync", 1),
    "while the table is computed": (reproduction, "measured", 1),
    "before the table is printed": (reproduce, "_write", 1),
}


def interrupted(table: Path, moment: str) -> str:
    """Reproduce until that moment; what was printed."""
    owner, name, call = MOMENTS[moment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dies(call)(getattr(owner, name)))
        return here("reproduce", table, "--seeds", 2, "--storage", table.parent, check=None)


@pytest.mark.parametrize("moment", MOMENTS)
def test_interrupted_then_run_again(tmp_path: Path, whole: str, moment: str) -> None:
    """The table is that of a run without interruption; each model is measured once."""
    table = write_guided_table(tmp_path)
    shown = interrupted(table, moment)
    assert whole not in shown and "Traceback" not in shown
    again = reproduced(table, "--seeds", 2)
    vain = "between an opening" in moment
    if vain:
        assert "1 opening of the test split without a result." in again
    assert without_openings(again) == whole
    assert_clean(tmp_path, "target", trials=1, openings=0)
    assert_clean(tmp_path, "guided", trials=4, openings=4 + vain)
    assert reproduced(table, "--seeds", 2) == again


def without_openings(shown: str) -> str:
    return "".join(line for line in shown.splitlines(True) if "without a result" not in line)


@pytest.mark.parametrize(
    ("begun", "moment", "number"),
    [
        ("between the studies", "guided/trials/*/*/attempt-1/log", signal.SIGINT),
        ("before the first opening", "guided/trials/*/*/*/test.npz", signal.SIGKILL),
    ],
)
def test_a_process_ends_then_is_run_again(
    tmp_path: Path, whole: str, begun: str, moment: str, number: signal.Signals
) -> None:
    """While the guided study trains, on Ray, by Ctrl-C, and while it is measured, by kill -9. What
    comes before was done here."""
    table = write_guided_table(tmp_path)
    interrupted(table, begun)
    driver = start("reproduce", table, "--seeds", 2, "--storage", tmp_path)
    wait_until(lambda: list(tmp_path.glob(moment)) or driver.poll() is not None, longest=0.002)
    assert driver.poll() is None
    driver.send_signal(number)
    shown, _ = driver.communicate(timeout=patient(120))
    kill(driver)
    if number == signal.SIGINT:
        assert driver.returncode == 75
        assert f"stopped by SIGINT. Resume: calstudy reproduce {table} --seeds 2 --storage" in shown
    again = reproduced(table, "--seeds", 2)
    assert without_openings(again) == whole
    assert_clean(tmp_path, "target", trials=1, openings=0)
    assert_clean(tmp_path, "guided", trials=4, openings=None)
    assert len(list(tmp_path.glob("guided/trials/*/*/*/test.npz"))) == 4
