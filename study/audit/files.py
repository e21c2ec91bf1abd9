"""The files of finished trials, compared with the digests that the ledger has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from study.analysis.ranking import Ranking, on_a_front
from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.files import HISTORY, MISSING, MODEL, PREDICTIONS, file_problem
from study.store.history import HistoryError, Row, read_history
from study.store.openings import TEST_FILE, Tested
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from trainables.machine import in_threads
from trainables.outputs.attempts import attempt_directory, attempts_in

COMPLETE_FILES = (PREDICTIONS, HISTORY, MODEL)


@dataclass(frozen=True)
class Compared:
    """whole: the files that match. problems: of the others, the trial, the file and what is
    wrong."""

    whole: set[Path]
    problems: list[tuple[str, str, str]]


def compared_files(
    study: StudyFolder, records: Trials, tested: Mapping[str, Mapping[int, Tested]], alive: bool
) -> Compared:
    """Those of the finished trials' results, of early stopping's decisions and of results on test;
    a model that was dropped on purpose is no problem.

    tested: by label and number. alive: whether a driver runs the study, which may just drop one.
    """
    kept = {record.name for record in on_a_front(study, Ranking(study, records).counted)}
    on_purpose = study.plain.get("keep_models") == "front" or study.recorded.pruned
    any_of_them = study.recorded.kept_by_other_rules or alive
    wanted = {}
    for record in records:
        for path, digest in _digests(
            study, record, tested[record.label].get(record.number)
        ).items():
            wanted[path] = (record.name, digest)
    found = in_threads(lambda path: file_problem(path, wanted[path][1]), wanted)
    compared = Compared(set(), [])
    for (path, (name, _)), problem in zip(wanted.items(), found, strict=True):
        dropped = path.name == MODEL and on_purpose and (any_of_them or name not in kept)
        if problem is None:
            compared.whole.add(path)
        elif not (problem == MISSING and dropped):
            compared.problems.append((name, path.name, problem))
    return compared


def _digests(study: StudyFolder, record: TrialRecord, tested: Tested | None) -> dict[Path, str]:
    """What the ledger has of a trial's files, by their paths."""
    found: dict[Path, str] = {}
    for epoch, rung in record.rungs.items():
        directory = attempt_directory(record.directory(study.directory), rung.attempt)
        digests = {f"rung-{epoch}.npz": "", **rung.digests}
        found |= {directory / file: digest for file, digest in digests.items()}
    own = record.digests | ({TEST_FILE: "", **tested.digests} if tested else {})
    return found | {study.files(record) / file: digest for file, digest in own.items()}


def check_files(facts: Evidence) -> tuple[Check, set[Path], dict[str, list[Row]]]:
    """The check, the files that match the ledger, and by trial the rows of its history.

    A finished trial has all files of the counted attempt, no newer attempt and no checkpoint; no
    trial is missing in the ledger.
    """
    study = facts.study
    compared = compared_files(study, facts.records, facts.tested, facts.alive)
    check = Check("files", "files of finished trials match their digests", len(compared.whole))
    for name in facts.unknown:
        fix = f"remove {study.directory / 'trials' / name}"
        check.add_offender(name, "has a directory, but is not in the ledger", fix)
    for name, file, problem in compared.problems:
        check.add_offender(name, f"{file} {problem}")
    histories: dict[str, list[Row]] = {}
    for record in facts.records.finished:
        _leftovers(facts, record, check)
        history = study.files(record) / HISTORY
        if history not in compared.whole:
            continue
        try:
            rows = read_history(history, record.name)
        except HistoryError as error:  # its digest is of such a file
            check.add_offender(record.name, error.wrong)
            continue
        histories[record.name] = rows
        epochs = [row["epoch"] for row in rows]
        planned = study.spec.epochs if record.state == "complete" else record.epoch or len(rows)
        if epochs != list(range(1, planned + 1)):
            has = f"history.json has the epochs {', '.join(map(str, epochs))}"
            check.add_offender(record.name, has)
    return check, compared.whole, histories


def _leftovers(facts: Evidence, record: TrialRecord, check: Check) -> None:
    if record.state == "complete":
        for file in sorted(set(COMPLETE_FILES) - set(record.digests)):
            check.add_offender(record.name, f"the ledger has no digest of its {file}")
    for attempt in attempts_in(record.directory(facts.study.directory)):
        number = int(attempt.name.removeprefix("attempt-"))
        if number > record.attempt:
            problem = f"attempt {number} is newer than the counted one"
            check.add_offender(record.name, problem, f"remove {attempt}")
        if (attempt / "last.pt").exists():
            fix = f"remove it with {facts.goes_on}"
            problem = f"is finished but still has {attempt.name}/last.pt"
            check.add_offender(record.name, problem, fix, facts.goes_on_later)
