"""The ledger as its driver opens it, under the driver's lock."""

from __future__ import annotations

from dataclasses import replace

from study.store.database_lock import DatabaseLock
from study.store.ledger import Ledger, open_to_write
from study.store.same_ledger import check_same_ledger
from study.store.study import Study, open_directory, write_study_file


def open_ledger(study: Study, lock: DatabaseLock | None = None) -> tuple[Ledger, list[str]]:
    """The study's ledger with all its labels, and what was repaired in it. That it was made is
    recorded. lock: what `driver_lock` gave.

    Raises LedgerError if it is missing or lacks trials although the study has begun.
    """
    traces = study.traces
    storage, repaired = open_to_write(study.directory, study.ledger, not traces.begun, lock)
    asked = check_same_ledger(storage, traces)
    ledger = Ledger(storage, study.name, study.id)
    made = traces.made
    if made and not asked:
        # Labels without trials are made anew, and a kill may come in between.
        made = _record(study, False)
    for label in study.labels:
        ledger.open(label, study.objectives)
    if not made:
        _record(study, True)
    return ledger, repaired


def _record(study: Study, made: bool) -> bool:
    """Record in study.yaml whether the ledger is made."""
    found = open_directory(study.directory, study.name)
    write_study_file(replace(found, recorded=replace(found.recorded, ledger_made=made)))
    return made
