"""Reading a confirmation: what became of a study's candidates, retrained from fresh seeds and opened on test once each.

A confirmation is a study like any other: NAME-confirm, beside NAME in the storage, with `confirms: NAME` in its spec
and one label for each thing retrained. This imports no torch.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from study.analysis.pareto import complete, front
from study.schema.errors import SpecError
from study.schema.objective import Objective
from study.store.study import Study, open_directory
from study.store.test_openings import Tested, read_tested
from study.store.trials import TrialRecord

SUFFIX, DEFAULT, BASELINE = "-confirm", "_default", "cross_entropy"
ROLES = ("candidate", "default", "baseline")


@dataclass(frozen=True)
class Confirmed:
    """One thing retrained: its complete trials, one for each fresh seed, in order."""

    label: str  # in the confirming study
    role: str  # one of ROLES
    candidate: TrialRecord | None  # of the search; None of a published default
    records: tuple[TrialRecord, ...]  # .metrics are of the validation split
    tests: tuple[dict[str, float], ...]  # the same seeds on the test split, the same names; fewer while it is not done
    shifts: dict[str, tuple[dict[str, float], ...]]  # the same on each set of `shift:`
    shift_samples: dict[str, int] = field(default_factory=dict)  # the sizes of these sets


@dataclass(frozen=True)
class Confirmation:
    """A confirming study and what it has: candidates, then defaults, then the baseline."""

    study: Study
    rows: tuple[Confirmed, ...]


class Moments(NamedTuple):
    """Over seeds; the deviation is of a sample (n - 1), NaN of one."""

    mean: float
    std: float


def confirmation_of(study: Study) -> Confirmation | None:
    """The study's confirmation; None where there is none. Raises SpecError where it is of another study."""
    directory = confirming_directory(study.directory)
    if not (directory / "study.yaml").is_file():
        return None
    confirming = open_directory(directory, directory.name)
    if confirming.confirms != study.name:
        return None
    searched = {record.name: record for record in study.all_records()}
    tested, records, methods = read_tested(confirming), confirming.records(), confirming.plain["methods"]
    rows = [_row(entry, searched, records[entry["label"]], tested[entry["label"]]) for entry in methods]
    return Confirmation(confirming, tuple(sorted(rows, key=lambda row: ROLES.index(row.role))))


def confirming_directory(directory: Path) -> Path:
    """Where the confirmation of the study of that directory lies."""
    return directory.with_name(directory.name + SUFFIX)


def _row(
    entry: Mapping[str, Any],
    searched: Mapping[str, TrialRecord],
    records: Iterable[TrialRecord],
    tested: Mapping[int, Tested],
) -> Confirmed:
    """Of one entry under `methods:`."""
    candidate = _candidate(entry, searched)
    role = "candidate" if candidate is not None else "baseline" if entry["name"] == BASELINE else "default"
    done = tuple(complete(records))
    opened = [tested[record.number] for record in done if record.number in tested]
    shifts = {
        name: tuple(test.shifts[name].metrics for test in opened if name in test.shifts)
        for name in dict.fromkeys(name for test in opened for name in test.shifts)
    }
    sizes = {name: of.samples for test in opened for name, of in test.shifts.items() if of.samples is not None}
    return Confirmed(entry["label"], role, candidate, done, tuple(test.metrics for test in opened), shifts, sizes)


def _candidate(entry: Mapping[str, Any], searched: Mapping[str, TrialRecord]) -> TrialRecord | None:
    """The trial that an entry retrains. Raises SpecError where it is not that trial: another study has its name now."""
    found = re.fullmatch(rf"(.+)_(\d{{4,}})({DEFAULT})?", entry["label"])
    if found is None:
        return None
    record, values = searched.get(f"{found[1]}/{found[2]}"), entry.get("values", {})
    if record is None and found[3]:
        return None  # the default of a method whose own label ends in a number
    if record is None or any(path not in values or values[path] != value for path, value in record.params.items()):
        problem = "no trial of the study has these values: another has taken its name. Move one of the two away."
        raise SpecError("study.yaml", f"methods.{entry['label']}", problem)
    return record


# ---- the names of what is retrained --------------------------------------------------------------------------------


def candidate_label(record: TrialRecord) -> str:
    """`focal_0007`: the label under which a trial of the search is retrained; `focal_0007_default` where it is both."""
    return f"{record.label}_{record.number:04d}"


def default_label(label: str) -> str:
    """`focal_default`: the label of a method's published default."""
    return label + DEFAULT


# ---- what it comes to ----------------------------------------------------------------------------------------------


def moments(values: Sequence[Mapping[str, float]]) -> dict[str, Moments]:
    """Mean and deviation, over seeds, of every metric that each of them has."""
    names = [name for name in values[0] if all(name in row for row in values)] if values else []
    columns = {name: [row[name] for row in values] for name in names}
    return {
        name: Moments(statistics.fmean(column), statistics.stdev(column) if len(column) > 1 else math.nan)
        for name, column in columns.items()
    }


def front_on_test(rows: Iterable[Confirmed], objectives: Sequence[Objective]) -> list[str]:
    """The labels whose mean test values no other's dominate, best of the first objective first.

    One of which a seed has no value of an objective there (nothing above 99% sure, say) takes no part.
    """
    means = [
        TrialRecord(row.label, 0, "complete", {}, {name: value.mean for name, value in moments(row.tests).items()})
        for row in rows
        if row.tests
    ]
    means = [mean for mean in means if all(objective.metric in mean.metrics for objective in objectives)]
    return [record.label for record in front(means, objectives)]
