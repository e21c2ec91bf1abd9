"""`run --retry-failed`: a failed trial is tried again in its place, and counted once."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from study.audit.audit import audit
from study.store.ledger import Ledger
from study.store.study import StudyFolder, open_study
from study.tracking.reader import read_runs
from tests.shared import made_once
from tests.study.command_line import calstudy, here, here_json, write_spec
from tests.study.trained import copy_of
from trainables.plugins import use_extensions
from trainables.training.attempt import Attempt

pytestmark = pytest.mark.slow

FAULTY = """
from dataclasses import dataclass
from trainables.methods.cross_entropy import CrossEntropy

@dataclass(frozen=True)
class Mine(CrossEntropy):
    factor: float = 1.0

    def loss(self, logits, targets, progress):
        if self.factor < 1.0:
            raise RuntimeError("no such luck")
        return self.factor * super().loss(logits, targets, progress)
"""
MENDED = FAULTY.replace("self.factor < 1.0", "self.factor < 0.0")


class Killed(BaseException):
    pass


def killed(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Of a study of which mine/0000 is complete, mine/0001 and mine/0002 fail."""
    return written(tmp_path)


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """That of a study that was run."""
    return copy_of(made_once("retried", make_failed), tmp_path) / "small.yaml"


def make_failed(storage: Path) -> None:
    here("run", written(storage), "--storage", storage)
    use_extensions(None)


def written(folder: Path) -> Path:
    write_code(folder, FAULTY)
    return write_spec(
        folder / "small.yaml",
        methods=["mine", "cross_entropy"],
        trials=3,
        epochs=1,
        extensions="ours",
        search_space={"method.factor": {"low": 0.5, "high": 2.0}},
        try_first=[{"method.factor": value} for value in (1.5, 0.75, 0.5)],
    )


def write_code(folder: Path, text: str) -> None:
    file = folder / "ours" / "methods" / "mine.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def states(study: StudyFolder) -> list[tuple[str, str, int]]:
    return [(one.name, one.state, one.attempt) for one in study.records().of("mine")]


def check_counted_once(study: StudyFolder) -> None:
    """In the ledger, in MLflow and by the audit."""
    assert [one.number for one in study.records().of("mine")] == [0, 1, 2]
    runs = [run.trial for run in read_runs(study.tracking(None), study.id, None)]
    assert sorted(filter(None, runs)) == sorted(one.name for one in study.records())
    report = audit(study, study.tracking(None))
    assert [str(one) for check in report.checks for one in check.offenders] == []
    assert report.duplicated == 0


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


MIXED = (
    f"wn code was mended for a retry (methods/mine.py): mine has trials 1 with {digest(FAULTY)[:8]}"
    f" (mine/0000), 2 with {digest(MENDED)[:8]} (mine/0001 and 1 more)"
)


@pytest.mark.platform
def test_mended_code_completes_what_failed_in_its_place(spec: Path, tmp_path: Path) -> None:
    here("run", spec, "--storage", tmp_path)
    study = open_study("small", str(tmp_path))
    failed = [("mine/0001", "failed", 1), ("mine/0002", "failed", 1)]
    assert states(study) == [("mine/0000", "complete", 1), *failed]
    values = {one.name: one.params for one in study.records()}

    write_code(tmp_path, MENDED)
    refused = here("run", spec, "--storage", tmp_path, check=2)
    assert "methods/mine.py has changed since" in refused and "--retry-failed" in refused
    # In processes of their own: this one has imported the study's former copy.
    said = calstudy("run", spec, "--storage", tmp_path, "--retry-failed", "mine/1").stdout
    assert "retry: mine/0001." in said
    assert states(study) == [
        ("mine/0000", "complete", 1),
        ("mine/0001", "complete", 2),
        ("mine/0002", "failed", 1),
    ]
    said = " ".join(here("run", spec, "--storage", tmp_path, "--retry-failed").split())
    assert "retry: mine/0002." in said and MIXED in said
    assert [state for _, state, _ in states(study)] == ["complete"] * 3
    assert {one.name: one.params for one in study.records()} == values
    check_counted_once(study)
    assert here_json("status", "small", "--storage", tmp_path)["methods"]["mine"]["complete"] == 3
    for command in ("status", "audit", "answer"):
        assert MIXED in " ".join(here(command, "small", "--storage", tmp_path).split()), command

    # New trials follow, by the numbers that they would have had.
    here("run", spec, "--storage", tmp_path, "--trials", 4)
    (new,) = [one for one in study.records().of("mine") if one.number == 3]
    assert new.extensions == {"methods/mine.py": digest(MENDED)}
    assert here("run", spec, "--storage", tmp_path, "--trials", 4, "--retry-failed").count(
        "retry: no failed trial is left."
    )
    assert "clean" in here("audit", "small", "--storage", tmp_path)


@pytest.mark.parametrize(
    "moments", [["one is in the ledger", "it trains"], ["its outcome is recorded"]]
)
def test_kills_are_gone_on_from(
    moments: list[str], failed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, each of a run that goes on from the one before."""
    spec = failed
    study = open_study("small", str(tmp_path))
    write_code(tmp_path, MENDED)
    retry, left = Ledger.retry, [1]

    def once(*words: Any) -> Any:
        if not left:
            raise Killed
        left.pop()
        return retry(*words)

    at_fault = {
        "one is in the ledger": (Ledger, "retry", once),
        "it trains": (Attempt, "_advance", killed),
        "its outcome is recorded": (Ledger, "_close", killed),
    }
    for moment in moments:
        with monkeypatch.context() as patch:
            patch.setattr(*at_fault[moment])
            with pytest.raises(Killed):
                here("run", spec, "--storage", tmp_path, "--retry-failed")
        assert states(study)[1][1] == "running"
        report = audit(study, study.tracking(None))  # nothing but what is pending
        assert not any(check.offenders for check in report.checks)
    here("run", spec, "--storage", tmp_path, "--retry-failed", "mine/0001")  # by the same name
    here("run", spec, "--storage", tmp_path, "--retry-failed")
    assert [state for _, state, _ in states(study)] == ["complete"] * 3
    # Who was killed after the last outcome gives the same command again.
    said = here("run", spec, "--storage", tmp_path, "--retry-failed", "mine/0001")
    assert "retry: no failed trial is left." in said
    check_counted_once(study)


def test_a_retry_that_fails_is_retried_and_what_it_cost_counts(
    failed: Path, tmp_path: Path
) -> None:
    spec = failed
    study = open_study("small", str(tmp_path))
    spent = [one.seconds or 0.0 for one in study.records().of("mine")]
    for attempt in (2, 3):
        here("run", spec, "--storage", tmp_path, "--retry-failed")
        assert states(study)[1:] == [
            ("mine/0001", "failed", attempt),
            ("mine/0002", "failed", attempt),
        ]
        record = study.records().of("mine")[1]
        assert record.failed_seconds == pytest.approx(spent[1])
        spent[1] += record.seconds or 0.0
    write_code(tmp_path, MENDED)
    here("run", spec, "--storage", tmp_path, "--retry-failed")
    assert [attempt for _, _, attempt in states(study)] == [1, 4, 4]
    check_counted_once(study)


def test_what_cannot_be_retried_is_refused_in_one_line(
    failed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object, storage: Path = tmp_path) -> str:
        said = here("run", failed, "--storage", storage, *words, check=2)
        return " ".join(said.split())

    none = tmp_path / "none"
    assert "there is no trial 'mine/1'" in refused("--retry-failed", "mine/1", storage=none)
    assert not (none / "small").exists()
    study = open_study("small", str(tmp_path))
    before = (study.directory / "ledger.log").read_bytes()
    assert refused("--retry-failed", "mine/7") == (
        "--retry-failed: there is no trial 'mine/7'. Did you mean 'mine/0002'?"
    )
    assert refused("--retry-failed", "mine/0") == (
        "--retry-failed: mine/0000 is complete. Remove it: only failed trials are retried."
    )
    assert "write --retry-failed too" in refused("mine/1")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Ledger, "begin_attempt", killed)
        here("confirm", "small", "--trial", "mine/0", "--seeds", 1, "--storage", tmp_path)
    assert "the confirmation of 'small' has begun, so no trial" in refused("--retry-failed")
    assert (study.directory / "ledger.log").read_bytes() == before


def test_a_running_trial_is_refused_and_keeps_its_code(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, ended = Attempt._advance, []

    def killed_later(self: Attempt, learner: Any) -> Any:
        if len(ended) == 4:  # 0000 and 0001 of both methods
            raise Killed
        ended.append(self)
        return advance(self, learner)

    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "_advance", killed_later)
        with pytest.raises(Killed):
            here("run", spec, "--storage", tmp_path)
    words = ("run", spec, "--storage", tmp_path, "--retry-failed")
    assert "mine/0002 is running" in here(*words, "mine/2", check=2)
    write_code(tmp_path, MENDED)
    assert "Restore it until mine/0002 has ended" in " ".join(here(*words, check=2).split())
