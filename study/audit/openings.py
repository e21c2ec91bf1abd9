"""The audit's check of the sealed test split: `confirm` opened it, and the results match.

It cannot detect reads that bypass the function that records openings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.audit.values import differing, recomputed
from study.store.confirmed import confirming_study, recorded_openings
from study.store.driver_lock import driver_is_alive
from study.store.files import BACKUP, PREDICTIONS
from study.store.openings import OPENINGS, TEST_FILE, Tested, openings_in
from study.store.study import StudyFolder
from study.store.trials import trial_name
from trainables.files.arrays import read_arrays
from trainables.metrics.out_of_distribution import separation_at
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

TOLERANCE_OF_FIT = 1e-5  # of a temperature fitted, maybe on another machine
CHOSEN = "anything selected since then may have been selected on the test split"


def check_openings(facts: Evidence, whole: set[Path]) -> Check:
    """Every opening was made by a `confirm` run, which the notes name, and gave what is recorded.

    whole: the files that match the ledger.
    """
    opened = sum(len(notes.get(OPENINGS, [])) for notes in facts.notes.values())
    check = Check("openings", "each test opening made by a confirm run", opened)
    if facts.study.confirms is None and (problem := other_openings(facts.study)):
        check.add_offender("study.yaml", problem, f"{BACKUP}, or the confirmation")
    if not facts.study.is_confirmation:
        for label, notes in facts.notes.items():
            for plain in notes.get(OPENINGS, []):
                by_whom = f"the test split was opened ({json.dumps(plain)}), but not by a confirm"
                check.add_offender(f"ledger of {label}", f"{by_whom} run", CHOSEN)
        return check
    known = _openings(facts, check)
    fix = f"measure it with `{facts.study.command('confirm')}`"
    later = facts.goes_on_later or facts.study.confirms_itself
    for record in facts.records.complete:
        if (tested := facts.tested_of(record)) is None:
            check.add_offender(record.name, "is complete, but not measured on test", fix, later)
        else:
            check.add_differences(
                record.name, _differences(facts.study.files(record), tested, whole)
            )
    for label, results in facts.tested.items():
        for number, tested in results.items():
            if (label, number, tested.opening) not in known:
                problem = "was measured on test without a recorded opening"
                check.add_offender(trial_name(label, number), problem)
    return check


def other_openings(search: StudyFolder) -> str | None:
    """What is wrong where a search records not as many openings as its confirmation, nor one more
    after a kill; None while a driver may be opening.

    A confirmation that is not here may have been deleted: `status` and `answer` say so.
    """
    openings = recorded_openings(search)
    study = confirming_study(search)
    if not openings or study is None or driver_is_alive(study.directory, study.ledger):
        return None
    found = chain(*map(openings_in, study.reader.notes().values()))
    newest = max((one.number for one in found if one is not None), default=0)
    if openings - 1 <= newest <= openings:
        return None
    return f"it records {openings} openings of the test split, {study.name} {newest}"


def _openings(facts: Evidence, check: Check) -> set[tuple[str, int, int]]:
    """The valid openings, as the label and number of their trial and their own number.

    Each number is there once, and for a complete trial that had no result.
    """
    complete = {record.name for record in facts.records.complete}
    seen: set[int] = set()
    known = set()
    for label, notes in facts.notes.items():
        said = []
        for opening in openings_in(notes):
            if opening is None or opening.number in seen:
                what = "an opening" if opening is None else f"opening {opening.number}"
                is_wrong = "is invalid" if opening is None else "is recorded twice"
                problem = f"{what} of the test split {is_wrong}"
                check.add_offender(f"ledger of {label}", problem, CHOSEN)
                continue
            number = opening.number
            seen.add(number)
            name = trial_name(label, opening.trial)
            known.add((label, opening.trial, number))
            tested = facts.tested[label].get(opening.trial)
            if name not in complete:
                problem = f"is not complete, but opening {number} of the test split was for it"
                check.add_offender(name, problem, CHOSEN)
            elif tested is not None and number > tested.opening:
                problem = f"was opened on test again (opening {number}) after it was measured"
                check.add_offender(name, problem, CHOSEN)
            came = "" if tested and tested.opening == number else ", without a result"
            of = f"trial {opening.trial} by confirm run {opening.run}"
            said.append(f"opening {number} of {of}{came}")
        if said:
            check.notes.append(f"{label}: {'; '.join(said)}")
    return known


def _differences(folder: Path, tested: Tested, whole: set[Path]) -> Sequence[str]:
    """What the files of a trial give otherwise than is recorded: the temperature, each value on
    test and on the shift sets."""
    found: dict[str, Predictions] = {}
    problems = []
    no_class = {
        _file_of(name) for name, of in tested.shifts.items() if "accuracy" not in of.metrics
    }
    for file in (PREDICTIONS, *tested.digests):
        if (path := folder / file) in whole:
            try:
                found[file] = _of_no_class(path) if file in no_class else Predictions.stored(path)
            except FieldError as error:
                problems.append(error.problem)
    if PREDICTIONS in found:
        fitted = found[PREDICTIONS].temperature()
        if not math.isclose(tested.temperature, fitted, rel_tol=TOLERANCE_OF_FIT):
            told = f"temperature is {tested.temperature:g} in the ledger"
            problems.append(f"{told}, {fitted:g} from {PREDICTIONS}")
    return [*problems, *_other_values(tested, found)]


def _file_of(shift: str) -> str:
    return f"shift_{shift}.npz"


def _of_no_class(path: Path) -> Predictions:
    """Stored predictions whose labels name no class."""
    arrays = read_arrays(path, "logits and labels")
    logits, labels = (torch.from_numpy(arrays[name]) for name in ("logits", "labels"))
    return Predictions(logits, labels, by_network=True)


def _other_values(tested: Tested, read: Mapping[str, Predictions]) -> Iterator[str]:
    """Recorded metrics that differ from those of the files that could be read."""
    on_test = read.get(TEST_FILE)
    recorded = [(TEST_FILE, " on test", tested.metrics)]
    for name, shifted in tested.shifts.items():
        recorded.append((_file_of(name), f" on {name}", shifted.metrics))
    for file, on, told in recorded:
        there = read.get(file)
        if there is None:
            continue
        if "accuracy" in told:
            scaled = there.logits.double() / tested.temperature
            yield from differing(told, recomputed(told, there, scaled), file, on)
        elif on_test is not None:  # samples of no class
            found = separation_at(on_test.logits, there.logits, tested.temperature)
            yield from differing(told, found, file, on)
