"""What calstudy and Optuna write of a trial, checked as it is read: people edit files, and disks
change them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from study.schema.errors import LedgerError
from study.store.checks import Predicate, each, having, is_int, is_number, of, or_none, with_only
from study.store.study_file import LATEST
from study.store.trials import trial_name
from trainables.outputs.outcome import Training

VERSION = 1  # of the attributes we set in Optuna
WITH_RETRIES = 2  # of a label that has retries, which version 1 would count as trials


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_trial(value: Any) -> bool:
    return _is_text(value) and re.fullmatch(r"[a-z0-9_]+/\d+", value) is not None


def _is_below(path: str) -> bool:
    return (
        not PurePosixPath(path).is_absolute()
        and ".." not in PurePosixPath(path).parts
        and "\0" not in path
    )


def _is_time(value: Any) -> bool:
    return _is_finite(value) and 0 <= value < LATEST


def _is_date(value: datetime | None) -> bool:
    try:
        return value is None or _is_time(value.timestamp())
    except (ValueError, OverflowError, OSError):
        return False


def _are_digests(value: Any) -> bool:
    """By a file's path in the attempt's folder."""
    return of(_is_text)(value) and all(map(_is_below, value))


_OF_TYPES: dict[str, Predicate] = {
    "str | None": or_none(_is_text),
    "int | None": or_none(is_int),
    "float | None": or_none(is_number),
    "dict[str, str] | None": or_none(of(_is_text)),
}
OUTCOME: dict[str, Predicate] = {
    "state": lambda value: value in ("complete", "pruned", "failed"),
    "metrics": of(is_number),
    "attempt": is_int,
    "digests": _are_digests,
    **{each.name: _OF_TYPES[str(each.type)] for each in fields(Training)},
}
# What else is written of a trial.
_FACTS: dict[str, Predicate] = {
    "attempt": is_int,
    "deaths": of(is_int),
    "memory": of(of(is_int)),
    "extensions": _are_digests,
    "stack": _is_trial,
    "together": each(_is_trial),
    "retries": is_int,
    "failed_seconds": lambda value: _is_finite(value) and value >= 0,
}
_is_decision = having(
    place=lambda value: is_int(value) and value >= 0,
    costs=lambda value: each(_is_finite)(value) and bool(value),
    goes_on=lambda value: isinstance(value, bool),
    attempt=is_int,
    digests=_are_digests,
)
_is_shift = with_only(metrics=of(is_number), data=_is_text, samples=is_int, dropped=is_int)


def _is_shifted(value: Any) -> bool:
    """Results on a shift set, which may say what it shares."""
    if not isinstance(value, dict):
        return False
    others = {key: of for key, of in value.items() if key != "shared"}
    return _is_shift(others) and _is_text(value.get("shared", ""))


_is_tested = with_only(
    opening=is_int,
    metrics=of(is_number),
    temperature=lambda value: _is_finite(value) and value > 0,
    digests=_are_digests,
    time=_is_time,
    shifts=of(_is_shifted),
)
# The facts of a label that are numbered, by what their names begin with.
_NUMBERED: dict[str, Predicate] = {"tests": _is_tested}
_is_place = with_only(seeds=is_int, goes_on=lambda value: isinstance(value, bool))
# An opening of the test split as it is recorded.
is_opening = with_only(number=is_int, trial=is_int, attempt=is_int, run=is_int, time=_is_time)


def studies_in(storage: BaseStorage) -> dict[str, Mapping[str, Any]]:
    """The facts of each Optuna study in a storage, by its name. Raises LedgerError if one has no
    name."""
    found = storage.get_all_studies()
    if not all(isinstance(study.study_name, str) for study in found):
        raise LedgerError(
            "ledger: the name of a study in it is not text", "Restore it from a backup."
        )
    return {study.study_name: study.user_attrs for study in found}


def adoptions_in(studies: Mapping[str, Mapping[str, Any]], name: str) -> int:
    """How often a copy of the study of that name went on, by the marks of its labels; a kill leaves
    some of them behind."""
    counts = [0]
    for full_name, facts in studies.items():
        mark = facts.get("calstudy")
        if full_name.rpartition("/")[0] == name and isinstance(mark, dict):
            count = mark.get("adoptions", 0)
            counts.append(count if is_int(count) else 0)
    return max(counts)


def check_mark(mark: Any, study_name: str, study_id: str | None = None) -> None:
    """Raise LedgerError if an Optuna study is not of this version, or of another study than
    `study_id`."""
    if mark is None:  # its driver was killed before any trial was asked
        return
    if not having(version=is_int, id=_is_text)(mark):
        raise LedgerError(
            f"ledger: the mark of '{study_name}' is not as calstudy writes it",
            "Restore it from a backup.",
        )
    if mark["version"] > WITH_RETRIES:
        raise LedgerError(
            f"ledger: '{study_name}' was written by a newer calstudy", "Upgrade to read it."
        )
    if study_id is not None and mark["id"] != study_id:
        raise LedgerError(
            f"ledger: contains another study named '{study_name}'",
            "Use a new name or another ledger.",
        )


def check_notes(notes: Mapping[Any, Any], study_name: str) -> None:
    """Raise LedgerError naming what of a label's facts is not as it was written; an opening is
    checked on its own."""
    for key, value in notes.items():
        wrong = not isinstance(key, str) or (key == "openings" and not isinstance(value, list))
        wrong = wrong or (key == "race" and not _is_place(value))
        kind, _, number = str(key).partition("/")
        if not wrong and kind in _NUMBERED:
            wrong = not (number.isdecimal() and _NUMBERED[kind](value))
        if wrong:
            problem = f"{str(key)[:40]!r} of '{study_name}' is not as calstudy writes it"
            raise LedgerError(f"ledger: {problem}", "Restore the ledger from a backup.")


def check_trial(label: str, trial: FrozenTrial) -> None:
    """Raise LedgerError naming what of a trial is not as it was written."""
    if wrong := _wrong_in(trial):
        name = trial_name(label, trial.number)
        raise LedgerError(
            f"ledger: {wrong} of {name} is not as calstudy writes it",
            "Restore the ledger from a backup.",
        )


def _wrong_in(trial: FrozenTrial) -> str | None:
    ours = trial.user_attrs
    if not (isinstance(ours, dict) and isinstance(trial.system_attrs, dict)):
        return "an attribute"
    if trial.state == TrialState.WAITING:  # a trial is recorded once it is asked
        return "the state"
    if outside := _outside_its_range(trial):
        return outside
    if not (_is_date(trial.datetime_start) and _is_date(trial.datetime_complete)):
        return "a date"
    outcome = ours.get("outcome", {})
    if wrong := _wrong_among(_FACTS, ours) or _wrong_in_outcome(outcome):
        return wrong
    if "outcome" in ours and "state" not in outcome:
        return "the outcome"
    rungs = ours.get("rungs", {})
    if not (isinstance(rungs, dict) and all(_is_rung(*rung) for rung in rungs.items())):
        return "`rungs`"
    if trial.state != TrialState.COMPLETE:
        return None
    if outcome.get("state") != "complete":
        return "the outcome"
    return None if each(_is_finite)(trial.values) else "the values"


def _outside_its_range(trial: FrozenTrial) -> str | None:
    for name, value in trial.params.items():
        found = trial.distributions[name]
        if not isinstance(found, FloatDistribution | IntDistribution):
            continue
        if not (is_number(value) and found.low <= value <= found.high):
            return name
    return None


def _wrong_in_outcome(outcome: Any) -> str | None:
    if not isinstance(outcome, dict):
        return "the outcome"
    wrong = _wrong_among(OUTCOME, outcome)
    return wrong and f"{wrong} in the outcome"


def _wrong_among(checks: Mapping[str, Predicate], facts: Mapping[str, Any]) -> str | None:
    """The first of the facts that does not pass its check."""
    wrong = (f"`{key}`" for key, check in checks.items() if key in facts and not check(facts[key]))
    return next(wrong, None)


def _is_rung(epoch: Any, entry: Any) -> bool:
    """Whether it is a decision of early stopping; one that stops has an outcome."""
    if not (isinstance(epoch, str) and epoch.isdecimal() and _is_decision(entry)):
        return False
    if entry["goes_on"]:
        return "outcome" not in entry
    outcome = entry.get("outcome")
    return (
        isinstance(outcome, dict)
        and _wrong_in_outcome(outcome) is None
        and outcome.get("state") == "pruned"
    )
