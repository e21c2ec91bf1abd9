"""The audit's check of the sealed test split: `confirm` opened it, and the results match.

It cannot detect reads that bypass the function that records openings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import chain

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.confirmed import confirming_study, recorded_openings
from study.store.driver_lock import driver_is_alive
from study.store.files import BACKUP, file_problem
from study.store.openings import OPENINGS, TEST_FILE, Opening, Tested, openings_in, tested_in
from study.store.study import Study
from study.store.trials import TrialRecord, trial_name
from trainables import metrics
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

TOLERANCE = 1e-6  # of a metric recomputed, maybe on another machine
CHOSEN = "anything selected since then may have been selected on the test split"


def check_openings(facts: Evidence) -> Check:
    """Every opening was made by a `confirm` run, which the notes name."""
    opened = sum(len(state.notes.get(OPENINGS, [])) for state in facts.labels.values())
    check = Check("openings", "each test opening made by a confirm run", opened)
    if facts.study.confirms is None:
        compare_record(facts.study, check)
    seen: set[int] = set()
    for label, state in facts.labels.items():
        if not facts.study.is_confirmation:
            for plain in state.notes.get(OPENINGS, []):
                problem = (
                    f"the test split was opened ({json.dumps(plain)}), but not by a confirm run"
                )
                check.add_offender(f"ledger of {label}", problem, CHOSEN)
            continue
        openings = _numbered(label, openings_in(state.notes), seen, check)
        tested = tested_in(state.notes)
        records = {record.number: record for record in facts.records.complete.of(label)}
        _compare(label, openings, tested, records, check)
        for number, record in records.items():
            if number not in tested:
                fix = f"measure it with `{facts.study.command('confirm')}`"
                later = facts.goes_on_later or facts.study.confirms_itself
                check.add_offender(record.name, "is complete, but not measured on test", fix, later)
            else:
                _check_files(facts, record, tested[number], check)
        if openings:
            check.notes.append(f"{label}: {'; '.join(_described(openings, tested))}")
    return check


def compare_record(search: Study, check: Check) -> None:
    """The search records as many openings as its confirmation, or one more after a kill.

    A confirmation that is not here may have been deleted: `status` and `answer` say so.
    """
    openings = recorded_openings(search)
    study = confirming_study(search)
    if not openings or study is None:
        return
    alive = driver_is_alive(study.directory, study.ledger)
    found = chain(*map(openings_in, study.reader.notes().values()))
    newest = max((one.number for one in found if one is not None), default=0)
    if not openings - 1 <= newest <= openings:
        problem = f"it records {openings} openings of the test split, {study.name} {newest}"
        check.add_offender("study.yaml", problem, f"{BACKUP}, or the confirmation", alive)


def _numbered(
    label: str, openings: Iterable[Opening | None], seen: set[int], check: Check
) -> list[Opening]:
    """The valid openings with unique numbers."""
    whole = []
    for opening in openings:
        if opening is None:
            check.add_offender(
                f"ledger of {label}", "an opening of the test split is invalid", CHOSEN
            )
        elif opening.number in seen:
            problem = f"opening {opening.number} of the test split is recorded twice"
            check.add_offender(f"ledger of {label}", problem, CHOSEN)
        else:
            seen.add(opening.number)
            whole.append(opening)
    return whole


def _compare(
    label: str,
    openings: list[Opening],
    tested: Mapping[int, Tested],
    records: Mapping[int, TrialRecord],
    check: Check,
) -> None:
    """Openings are of complete trials, and none follows the recorded result."""
    for opening in openings:
        name = trial_name(label, opening.trial)
        number = opening.number
        found = tested.get(opening.trial)
        if opening.trial not in records:
            check.add_offender(
                name, f"is not complete, but opening {number} of the test split was for it", CHOSEN
            )
        elif found is not None and number > found.opening:
            check.add_offender(
                name, f"was opened on test again (opening {number}) after it was measured", CHOSEN
            )
    known = {(opening.trial, opening.number) for opening in openings}
    for trial, found in tested.items():
        if (trial, found.opening) not in known:
            check.add_offender(
                trial_name(label, trial), "was measured on test without a recorded opening"
            )


def _described(openings: list[Opening], tested: Mapping[int, Tested]) -> Iterable[str]:
    for opening in openings:
        found = tested.get(opening.trial)
        came = "" if found is not None and found.opening == opening.number else ", without a result"
        yield (
            f"opening {opening.number} of trial {opening.trial} by confirm run {opening.run}{came}"
        )


def _check_files(facts: Evidence, record: TrialRecord, tested: Tested, check: Check) -> None:
    """The files reproduce the recorded results."""
    for name, digest in tested.digests.items():
        problem = file_problem(facts.study.files(record) / name, digest)
        if problem is not None:
            check.add_offender(record.name, f"{name} {problem}")
        elif name == TEST_FILE:
            _check_values(facts, record, tested, check)


def _check_values(facts: Evidence, record: TrialRecord, tested: Tested, check: Check) -> None:
    try:
        predictions = Predictions.stored(facts.study.files(record) / TEST_FILE)
    except FieldError as error:
        check.add_offender(record.name, error.problem)
        return
    logits = predictions.logits.double()
    for objective in facts.study.spec.objectives:
        name = objective.metric
        if metrics.is_own(name):  # as recorded: its code is not run
            continue
        found = metrics.value(name, logits, predictions.labels, logits / tested.temperature)
        value = tested.metrics.get(name, math.nan)
        if not abs(value - found) <= TOLERANCE and not (math.isnan(value) and math.isnan(found)):
            check.add_offender(
                record.name, f"{name} on test is {value:g} in the ledger, {found:g} from test.npz"
            )
