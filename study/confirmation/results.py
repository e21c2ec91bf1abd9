"""Read a confirmation: a study's candidates, retrained from fresh seeds and measured on test once each.

A confirmation is a study like any other: NAME-confirm, next to NAME in the storage, with `confirms: NAME` in its spec
and one label per candidate. This imports no torch.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from study.analysis.pareto import complete, front
from study.schema.errors import SpecError
from study.schema.objective import Objective
from study.store.confirmed import SUFFIX, confirming_study
from study.store.study import Study, open_directory
from study.store.test_openings import Tested, read_tested
from study.store.trials import TrialRecord

DEFAULT, BASELINE = "_default", "cross_entropy"
ROLES = ("candidate", "default", "baseline")


@dataclass(frozen=True)
class Confirmed:
    """One retrained candidate: its complete trials, one per fresh seed, in order."""

    label: str  # in the confirming study
    role: str  # one of ROLES
    candidate: TrialRecord | None  # of the search; None for a method's default
    records: tuple[TrialRecord, ...]  # their metrics are on the validation split
    tests: tuple[dict[str, float], ...]  # the same seeds on test; fewer until all are measured
    shifts: dict[str, tuple[dict[str, float], ...]]  # the same on each shift set
    shift_samples: dict[str, int] = field(default_factory=dict)  # sizes of these sets
    shift_dropped: dict[str, int] = field(
        default_factory=dict
    )  # samples left out, which train or validation has too


@dataclass(frozen=True)
class Confirmation:
    """A confirmation and its rows: candidates, then defaults, then the baseline."""

    study: Study
    rows: tuple[Confirmed, ...]


class Moments(NamedTuple):
    """Over seeds; sample standard deviation (n - 1), NaN for one seed."""

    mean: float
    std: float


def confirmation_of(study: Study) -> Confirmation | None:
    """The study's confirmation, or None. Raises SpecError if it retrains trials of another study."""
    confirming = confirming_study(study)
    if confirming is None:
        return None
    searched = {record.name: record for record in study.all_records()}
    tested, records, methods = (
        read_tested(confirming),
        confirming.records(),
        confirming.plain["methods"],
    )
    rows = [
        _row(entry, searched, records[entry["label"]], tested[entry["label"]]) for entry in methods
    ]
    return Confirmation(confirming, tuple(sorted(rows, key=lambda row: ROLES.index(row.role))))


def search_of(study: Study) -> Study:
    """The study that it confirms; the study itself if it confirms none."""
    if study.confirms is None:
        return study
    directory = study.directory.with_name(study.directory.name.removesuffix(SUFFIX))
    return open_directory(directory, directory.name)


def _row(
    entry: Mapping[str, Any],
    searched: Mapping[str, TrialRecord],
    records: Iterable[TrialRecord],
    tested: Mapping[int, Tested],
) -> Confirmed:
    candidate = _candidate(entry, searched)
    role = (
        "candidate"
        if candidate is not None
        else "baseline"
        if entry["name"] == BASELINE
        else "default"
    )
    done = tuple(complete(records))
    opened = [tested[record.number] for record in done if record.number in tested]
    shifts = {
        name: tuple(test.shifts[name].metrics for test in opened if name in test.shifts)
        for name in dict.fromkeys(name for test in opened for name in test.shifts)
    }
    sizes = {
        name: of.samples
        for test in opened
        for name, of in test.shifts.items()
        if of.samples is not None
    }
    dropped = {name: of.dropped for test in opened for name, of in test.shifts.items()}
    tests = tuple(test.metrics for test in opened)
    return Confirmed(entry["label"], role, candidate, done, tests, shifts, sizes, dropped)


def _candidate(entry: Mapping[str, Any], searched: Mapping[str, TrialRecord]) -> TrialRecord | None:
    """The trial that an entry retrains. Raises SpecError if the study's trial has other values."""
    found = re.fullmatch(rf"(.+)_(\d{{4,}})({DEFAULT})?", entry["label"])
    if found is None:
        return None
    record, values = searched.get(f"{found[1]}/{found[2]}"), entry.get("values", {})
    if record is None and found[3]:
        return None  # the default of a method whose label ends in a number
    if record is None or any(
        path not in values or values[path] != value for path, value in record.params.items()
    ):
        problem = "no trial of the study has these values; another study has taken its name. Move one of them away."
        raise SpecError("study.yaml", f"methods.{entry['label']}", problem)
    return record


# ---- the names of what is retrained --------------------------------------------------------------------------------


def candidate_label(record: TrialRecord) -> str:
    """`focal_0007`: the label of a retrained trial; `focal_0007_default` if it equals the default."""
    return f"{record.label}_{record.number:04d}"


def default_label(label: str) -> str:
    """`focal_default`: the label of a method's default."""
    return label + DEFAULT


def default_texts(found: Confirmation) -> dict[str, str]:
    """Whose settings each method's default is, by label: `published default (Mukhoti et al. 2020)`."""
    from study.schema.recommended import standing, standing_text

    labels = [row.label for row in found.rows if row.role == "default"]
    return {
        label: standing_text(standing(found.study.spec.trial(label).method)) for label in labels
    }


# ---- summaries -----------------------------------------------------------------------------------------------------


def moments(values: Sequence[Mapping[str, float]]) -> dict[str, Moments]:
    """Mean and standard deviation over seeds of every metric that all of them have."""
    names = [name for name in values[0] if all(name in row for row in values)] if values else []
    columns = {name: [row[name] for row in values] for name in names}
    return {
        name: Moments(
            statistics.fmean(column), statistics.stdev(column) if len(column) > 1 else math.nan
        )
        for name, column in columns.items()
    }


def front_on_test(rows: Iterable[Confirmed], objectives: Sequence[Objective]) -> list[str]:
    """The labels whose mean test values are not dominated, best by the first objective first.

    A label is left out if an objective is undefined for one of its seeds (nothing above 99% confidence, say).
    """
    means = [
        TrialRecord(
            row.label,
            0,
            "complete",
            {},
            {name: value.mean for name, value in moments(row.tests).items()},
        )
        for row in rows
        if row.tests
    ]
    means = [
        mean for mean in means if all(objective.metric in mean.metrics for objective in objectives)
    ]
    return [record.label for record in front(means, objectives)]
