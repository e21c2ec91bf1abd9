"""Audit, read-only: prove that every planned trial is counted exactly once, or list the problems.

What the running driver, or the next run of a study that stopped before its end, uploads or cleans
up is `pending`, not a problem. Trials that are to do or interrupted are counted; they are not a
problem either.
"""

from __future__ import annotations

from study.analysis.racing import places_of, standing_of
from study.analysis.states import Snapshot, summed
from study.audit.evidence import Evidence, gather
from study.audit.extensions import check_extensions
from study.audit.files import check_files
from study.audit.openings import check_openings
from study.audit.result import AuditReport, Check
from study.audit.rungs import check_rungs
from study.audit.tracked import check_tracked, sample_of
from study.audit.values import check_results
from study.schema.compatibility import completed_meaning, refuse_changes
from study.schema.errors import SpecError
from study.store.home import away_from_home
from study.store.study import StudyFolder


def audit(study: StudyFolder, tracking_uri: str, histories: float | None = None) -> AuditReport:
    """Compare all records of a study. Raises LedgerError if the ledger cannot be read.

    histories: of how many trials those in MLflow are compared (math.inf: of each); default: of a
    sample from a server, of each from a database.
    """
    facts = gather(study, tracking_uri, histories)
    files, whole, rows = check_files(facts)
    checks = [
        _identity(facts),
        _ledger(facts),
        files,
        check_results(facts, whole),
        check_tracked(facts, rows),
        check_openings(facts, whole),
    ]
    if study.spec.early_stopping is not None:
        checks.append(check_rungs(facts, study.spec.early_stopping, whole))
    if study.recorded.race is not None:
        checks.append(_race(facts))
    if study.spec.extensions is not None:
        checks.append(check_extensions(facts))
    away = away_from_home(study)
    return AuditReport(
        study.name,
        facts.alive,
        None if away is None else str(away),
        checks,
        summed(Snapshot.of(study, facts.records, facts.alive).counts.values()),
        len(facts.unknown),
        sum(check.twice for check in checks),
        sample_of(facts),
    )


def _identity(facts: Evidence) -> Check:
    """study.yaml belongs to this ledger, and the meaning of a trial never changed."""
    check = Check("identity", "ledger and study.yaml describe one study", len(facts.notes))
    study = facts.study
    try:
        meaning = completed_meaning(study.recorded.meaning, study.spec.meaning())
        refuse_changes(meaning, study.spec, "study.yaml", "has trials")
    except SpecError as error:
        fix = "restore the value the trials were trained with"
        for difference in error.differences:
            check.add_offender("study.yaml", difference, fix)
    for label, notes in facts.notes.items():
        found = notes.get("calstudy", {}).get("id")
        if found != study.id and facts.records.of(label):
            problem = f"belongs to study {found}, study.yaml to {study.id}"
            check.add_offender(f"ledger of {label}", problem)
    return check


def _race(facts: Evidence) -> Check:
    """What was decided follows from the trials that ended before."""
    recorded = facts.records.places
    check = Check("race", "seeds given out as the rule of the race decides", len(recorded))
    standing = standing_of(facts.study, facts.records)
    assert standing is not None
    decided = places_of(facts.study, facts.records, standing)
    for label, place in recorded.items():
        now = decided[label]
        if place.seeds > now.seeds or (place != now and not place.goes_on):
            problem = f"{place.seeds} seeds are recorded, and its trials decide {now.seeds}"
            check.add_offender(label, problem, "restore the ledger from a backup")
    return check


def _ledger(facts: Evidence) -> Check:
    check = Check("ledger", "each planned trial once in the ledger", len(facts.records))
    wanted = facts.records.planned(facts.study.planned)
    for label, found in facts.records.by_label.items():
        planned = wanted[label]
        fix = f"if the study ran with more, run {facts.goes_on} with `trials: {len(found)}`"
        for record in found[planned:]:
            problem = f"only {planned} trials of {label} were requested"
            check.add_offender(record.name, problem, fix)
        check.twice += len(found[planned:])
    return check
