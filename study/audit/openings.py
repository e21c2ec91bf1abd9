"""The audit's check of the sealed test split: `confirm` opened it, and the results match.

It cannot detect reads that bypass the function that records openings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import torch

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.audit.values import differing, in_short, recomputed
from study.store.confirmed import confirming_study, recorded_openings
from study.store.driver_lock import driver_is_alive
from study.store.files import BACKUP, PREDICTIONS, file_problem, stored_predictions
from study.store.openings import OPENINGS, TEST_FILE, Opening, Tested, openings_in, tested_in
from study.store.study import Study
from study.store.trials import TrialRecord, trial_name
from trainables.files.arrays import read_arrays
from trainables.metrics.out_of_distribution import separation_at
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

TOLERANCE_OF_FIT = 1e-5  # of a temperature fitted, maybe on another machine
CHOSEN = "anything selected since then may have been selected on the test split"


def check_openings(facts: Evidence) -> Check:
    """Every opening was made by a `confirm` run, which the notes name, and gave what is
    recorded."""
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
    """The files are those recorded, and give every recorded value: on test and on shift sets."""
    read = {}
    ood = [_file_of(name) for name, of in tested.shifts.items() if "accuracy" not in of.metrics]
    for file, digest in tested.digests.items():
        path = facts.study.files(record) / file
        if problem := file_problem(path, digest):
            check.add_offender(record.name, f"{file} {problem}")
            continue
        try:
            read[file] = _of_no_class(path) if file in ood else Predictions.stored(path)
        except FieldError as error:
            check.add_offender(record.name, error.problem)
    if problems := [*_other_temperature(facts, record, tested), *_other_values(tested, read)]:
        check.add_offender(record.name, in_short(problems))


def _file_of(shift: str) -> str:
    return f"shift_{shift}.npz"


def _of_no_class(path: Path) -> Predictions:
    """Stored predictions whose labels name no class."""
    arrays = read_arrays(path, "logits and labels")
    logits, labels = (torch.from_numpy(arrays[name]) for name in ("logits", "labels"))
    return Predictions(logits, labels, by_network=True)


def _other_temperature(facts: Evidence, record: TrialRecord, tested: Tested) -> Iterator[str]:
    try:
        found = stored_predictions(facts.study, record).temperature()
    except FieldError:  # the check of files says so
        return
    if not math.isclose(tested.temperature, found, rel_tol=TOLERANCE_OF_FIT):
        yield f"temperature is {tested.temperature:g} in the ledger, {found:g} from {PREDICTIONS}"


def _other_values(tested: Tested, read: Mapping[str, Predictions]) -> Iterator[str]:
    """Recorded metrics that differ from those of the files that could be read."""
    on_test = read.get(TEST_FILE)
    if on_test is not None:
        found = _at(tested.temperature, on_test, tested.metrics)
        yield from differing(tested.metrics, found, TEST_FILE, " on test")
    for name, shifted in tested.shifts.items():
        file = _file_of(name)
        if (there := read.get(file)) is None:
            continue
        if "accuracy" in shifted.metrics:
            found = _at(tested.temperature, there, shifted.metrics)
        elif on_test is None:
            continue
        else:  # samples of no class
            found = separation_at(on_test.logits, there.logits, tested.temperature)
        yield from differing(shifted.metrics, found, file, f" on {name}")


def _at(
    temperature: float, predictions: Predictions, names: Mapping[str, float]
) -> dict[str, float]:
    return recomputed(names, predictions, predictions.logits.double() / temperature)
