"""Audit, read-only: prove that every planned trial is counted exactly once, or list the problems.

What the running driver, or the next run of a study that stopped before its end, uploads or cleans
up is `pending`, not a problem. Trials that are to do or interrupted are counted; they are not a
problem either.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from study.analysis.states import Snapshot, summed
from study.audit.epochs import Epochs, trained_epochs
from study.audit.evidence import Evidence, gather
from study.audit.extensions import check_extensions
from study.audit.files import compared_files
from study.audit.openings import check_openings
from study.audit.result import AuditReport, Check
from study.audit.rungs import check_rungs
from study.audit.tracked import Histories, check_tracked, sample_of
from study.audit.values import check_results
from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.errors import SpecError
from study.store.files import HISTORY
from study.store.history import HistoryError, Row, read_history
from study.store.home import check_home
from study.store.study import Study
from study.store.trials import TrialRecord, trial_name
from trainables.outputs.attempts import attempt_directory

COMPLETE_FILES = ("predictions.npz", "history.json", "model.pt")


def audit(study: Study, tracking_uri: str, histories: float | None = None) -> AuditReport:
    """Compare all records of a study. Raises LedgerError if the ledger cannot be read.

    histories: of how many trials those in MLflow are compared (math.inf: of each); default: of a
    sample from a server, of each from a database.
    """
    facts = gather(study, tracking_uri, histories)
    files, whole = _files(facts)
    rows = _histories(facts, whole, files)
    epochs, counts = _epochs(facts, rows)
    checks = [
        _identity(facts),
        _ledger(facts),
        files,
        check_results(facts, whole),
        check_tracked(facts, rows),
        epochs,
        check_openings(facts),
    ]
    if study.spec.early_stopping is not None:
        checks.append(check_rungs(facts, study.spec.early_stopping))
    if study.spec.extensions is not None:
        checks.append(check_extensions(facts))
    states = summed(Snapshot.of(study, facts.records, facts.alive).counts.values())
    lost = len({*_missing(facts), *_unknown(facts)})
    twice = sum(check.twice for check in checks)
    return AuditReport(
        study.spec.name,
        facts.alive,
        _copied(study),
        checks,
        states,
        lost,
        twice,
        counts,
        sample_of(facts),
    )


def _copied(study: Study) -> str | None:
    try:
        check_home(study)
    except SpecError as error:
        return str(error)
    return None


# ---- the ledger ----------------------------------------------------------------------------------


def _identity(facts: Evidence) -> Check:
    """study.yaml belongs to this ledger, and the meaning of a trial never changed."""
    check = Check("identity", "ledger and study.yaml describe one study", len(facts.labels))
    study = facts.study
    spec = study.spec
    try:
        meaning = completed_meaning(study.recorded.meaning, spec.meaning())
        refuse_changes(meaning, spec, "study.yaml", "has trials")
    except SpecError as error:
        for difference in error.differences:
            check.add_offender(
                "study.yaml", difference, "restore the value the trials were trained with"
            )
    if not study.recorded.data_digest:
        check.add_offender("study.yaml", "the digest of the data is not recorded")
    for label, state in facts.labels.items():
        name = f"ledger of {label}"
        if state.mark is None:
            if facts.records.of(label):
                check.add_offender(name, "has no study id")
        elif state.mark["id"] != study.id:
            check.add_offender(
                name, f"belongs to study {state.mark['id']}, study.yaml to {study.id}"
            )
        elif label not in study.labels:
            check.add_offender(name, "study.yaml has no such label", "restore it under `methods`")
        elif state.directions != [objective.direction for objective in spec.objectives]:
            check.add_offender(
                name, f"its objectives {' and '.join(state.directions)}, those of study.yaml do not"
            )
    return check


def _ledger(facts: Evidence) -> Check:
    check = Check("ledger", "each planned trial once in the ledger", len(facts.records))
    spec = facts.study.spec
    for name in _missing(facts):
        check.add_offender(name, "is not in the ledger, later trials are")
    for variant in spec.variants:
        label = variant.label
        found = facts.records.of(label)
        for record in found[spec.trials :]:
            fix = f"if the study ran with more, run {facts.goes_on} with `trials: {len(found)}`"
            check.add_offender(
                record.name, f"only {spec.trials} trials of {label} were requested", fix
            )
        check.twice += len(found[spec.trials :])
    return check


def _missing(facts: Evidence) -> list[str]:
    """Trials missing in the ledger although it has later ones."""
    missing = []
    for label, found in facts.records.by_label.items():
        numbers = {*range(len(found))} - {record.number for record in found}
        missing += [trial_name(label, number) for number in sorted(numbers)]
    return missing


# ---- files on disk -------------------------------------------------------------------------------


def _files(facts: Evidence) -> tuple[Check, dict[str, set[str]]]:
    """The check, and per trial the files that match the ledger."""
    check = Check("files", "files of finished trials match their digests")
    study = facts.study
    for name in _unknown(facts):
        check.add_offender(
            name,
            "has a directory, but is not in the ledger",
            f"remove {study.directory / 'trials' / name}",
        )
    for record in facts.records.finished:
        _leftovers(facts, record, check)
    found = compared_files(study, facts.records, facts.alive)
    check.counted += found.matching
    for name, file, problem in found.problems:
        check.add_offender(name, f"{file} {problem}")
    return check, found.whole


def _unknown(facts: Evidence) -> list[str]:
    """Trials with a directory that are not in the ledger."""
    return sorted(set(facts.attempts) - {record.name for record in facts.records})


def _leftovers(facts: Evidence, record: TrialRecord, check: Check) -> None:
    """A finished trial has all files of the counted attempt, no newer attempt and no checkpoint."""
    if record.state == "complete":
        for file in sorted(set(COMPLETE_FILES) - set(record.digests)):
            check.add_offender(record.name, f"the ledger has no digest of its {file}")
    for attempt in sorted(facts.attempts.get(record.name, ())):
        directory = attempt_directory(record.directory(facts.study.directory), attempt)
        if attempt > record.attempt:
            check.add_offender(
                record.name,
                f"attempt {attempt} is newer than the counted one",
                f"remove {directory}",
            )
        if os.path.exists(directory / "last.pt"):
            fix = f"remove it with {facts.goes_on}"
            problem = f"is finished but still has {directory.name}/last.pt"
            check.add_offender(record.name, problem, fix, facts.goes_on_later)


def _histories(facts: Evidence, whole: Mapping[str, set[str]], check: Check) -> Histories:
    """The history rows of finished trials; one that cannot be read is a problem of `check`."""
    found: dict[str, list[Row]] = {}
    for record in facts.records.finished:
        if HISTORY in whole.get(record.name, ()):
            try:
                found[record.name] = read_history(facts.study.files(record) / HISTORY, record.name)
            except HistoryError as error:  # its digest is of such a file
                check.add_offender(record.name, error.wrong)
    return found


def _epochs(facts: Evidence, histories: Histories) -> tuple[Check, Epochs]:
    """Each epoch is once in the history, and no more were repeated than guaranteed."""
    check = Check("epochs", "each epoch once, repeated at most as guaranteed")
    total = Epochs()
    for record in facts.records:
        rows = histories.get(record.name)
        planned = facts.study.spec.epochs if record.state == "complete" else record.epoch
        found = [] if rows is None else [row["epoch"] for row in rows]
        if rows is not None and found != list(range(1, (planned or len(rows)) + 1)):
            check.add_offender(
                record.name, f"history.json has the epochs {', '.join(map(str, found))}"
            )
        if record.name not in facts.attempts:
            continue
        directory = record.directory(facts.study.directory)
        needed = None if rows is None else len(rows)
        # A stack has no checkpoints.
        interval = math.inf if record.stack else facts.study.spec.checkpoint_seconds
        trial = trained_epochs(directory, interval, needed)
        total += trial.epochs
        for broken in trial.broken:
            check.add_offender(record.name, broken, "this is a bug in calstudy, please report it")
        if trial.lacking:
            problem = f"no log has its epochs {', '.join(map(str, trial.lacking))}"
            check.add_offender(record.name, problem, "its training cannot be verified")
    check.counted = total.trained
    return check, total
