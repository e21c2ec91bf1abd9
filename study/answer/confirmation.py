"""Read a confirmation: candidates retrained from fresh seeds and measured on test once each.

A confirmation is a study like any other: NAME-confirm, next to NAME in the storage, with `confirms:
NAME` in its spec and one label per candidate. A study without a search is its own: one row per
label, nothing retrained. This imports no torch.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from study.analysis.pareto import front, measured_in
from study.analysis.ranking import Ranking
from study.schema.errors import SpecError
from study.schema.objective import Objective
from study.store.confirmed import SUFFIX, added_seeds, confirming_study, missing_confirmation
from study.store.extensions import mended_code
from study.store.files import PREDICTIONS
from study.store.openings import Tested, read_tested
from study.store.study import StudyFolder, open_directory
from study.store.trials import TrialRecord, Trials
from study.store.with_objectives import tested_by, with_objectives

DEFAULT = "_default"
BASELINE = "cross_entropy"
ROLES = ("candidate", "default", "method", "baseline")


@dataclass(frozen=True)
class Confirmed:
    """One retrained candidate: its complete trials, one per fresh seed, in order.

    role: one of ROLES; `method` where nothing was retrained.
    """

    label: str  # in the confirming study
    role: str
    candidate: TrialRecord | None  # of the search; None for a method's default, or its settings
    records: tuple[TrialRecord, ...]  # their metrics are on the validation split
    tests: tuple[dict[str, float], ...]  # the same seeds on test; fewer until all are measured
    shifts: dict[str, tuple[dict[str, float], ...]]  # the same on each shift set
    shift_samples: dict[str, int] = field(default_factory=dict)  # sizes of these sets
    # Samples left out, which train or validation has too.
    shift_dropped: dict[str, int] = field(default_factory=dict)
    shift_shared: tuple[str, ...] = ()  # what is said of groups that these have too

    @property
    def name(self) -> str:
        """The model's name everywhere: `focal/0007` for a retrained trial, else `focal_default`."""
        return self.label if self.candidate is None else self.candidate.name

    @property
    def networks(self) -> tuple[str, ...]:
        """Digests of its networks' predictions: rows with the same ones are one model."""
        return tuple(one.digests.get(PREDICTIONS, one.name) for one in self.records)


@dataclass(frozen=True)
class Confirmation:
    """A confirmation and its rows: candidates, then defaults, then the baseline.

    search: the study that it confirms. records: all its trials. tested: what each gave on test.
    """

    study: StudyFolder
    rows: tuple[Confirmed, ...]
    search: StudyFolder
    records: Trials
    tested: Mapping[str, Mapping[int, Tested]]  # by label and number
    mended: tuple[str, ...] = ()  # own code, for retries in the search

    @property
    def finished(self) -> bool:
        """Whether every seed is trained and measured on test."""
        measured = all(len(row.tests) == len(row.records) for row in self.rows)
        return measured and not self.study.lacking(self.records)

    @property
    def goes_on(self) -> str:
        """The command that resumes it."""
        if self.study.confirms_itself and self.study.lacking(self.records):
            return self.study.goes_on
        return self.study.command("confirm")

    @property
    def cautions(self) -> list[str]:
        """What is said wherever its test values are shown: of seeds that began after test was
        opened, of groups that splits share, and of own code that was mended."""
        said = dict.fromkeys([self._added, *(self.study.recorded.shared or ())])
        said |= dict.fromkeys(self.mended)
        for row in self.rows:
            said |= dict.fromkeys(row.shift_shared)
        return [each for each in said if each]

    @property
    def _added(self) -> str:
        """What is said of seeds that began after test was opened; else empty."""
        added = added_seeds(self.study, self.records)
        parts: dict[str, list[str]] = {}
        for label, count in added.items():
            words = f"{count} of {len(self.records.by_label[label])} seeds"
            parts.setdefault(words, []).append(label)
        if not parts:
            return ""
        if len(parts) == 1 and len(added) == len(self.records.by_label):
            said = next(iter(parts))
        else:
            said = "; ".join(f"{words} of {', '.join(of)}" for words, of in parts.items())
        return f"{said} added after test results were seen"


@dataclass(frozen=True)
class Results:
    """What a study has come to, read once: its trials and, if there is one, its confirmation."""

    study: StudyFolder
    records: Trials
    confirmation: Confirmation | None = None

    @cached_property
    def ranking(self) -> Ranking:
        return Ranking(self.study, self.records)

    @property
    def lacking(self) -> int:
        """How many trials of the search are not done."""
        return self.study.lacking(self.records)

    @cached_property
    def missing(self) -> str | None:
        """What is said of a confirmation that is recorded, but not here; else None."""
        found = self.confirmation
        return missing_confirmation(self.study, None if found is None else found.study)

    def served_as(self, serves: str) -> Results:
        """The results as if the study's registered models gave TEMPERATURE or RAW."""
        return replace(self, study=self.study.served_as(serves))


class Moments(NamedTuple):
    """The mean over seeds, and the sample standard deviation (n - 1); NaN for one seed."""

    mean: float
    std: float


def results_of(study: StudyFolder, confirming: StudyFolder | None = None) -> Results:
    """The study's results now. Raises SpecError if its confirmation retrains another's trials.

    confirming: the confirmation, as it was opened before.
    """
    records = study.records()
    study = Ranking(study, records).deployed
    confirming = confirming_study(study, confirming)
    if confirming is None:
        return Results(study, records)
    if study.given is not None and not study.confirms_itself:
        confirming = with_objectives(confirming, study.given.objectives)
    if study.confirms_itself:
        return Results(study, records, _measured(study, records))
    return Results(study, records, _confirmation(study, records, confirming))


def _measured(study: StudyFolder, records: Trials) -> Confirmation:
    """A study as its own confirmation."""
    tested = tested_by(study, read_tested(study))
    rows = []
    for entry in study.plain["methods"]:
        label = entry["label"]
        role = "baseline" if entry["name"] == BASELINE else "method"
        rows.append(_row(label, role, None, records.complete.of(label), tested[label]))
    return Confirmation(study, tuple(rows), study, records, tested, tuple(mended_code(records)))


def _confirmation(search: StudyFolder, searched: Trials, confirming: StudyFolder) -> Confirmation:
    reader = confirming.reader.held()
    records = confirming.records(reader)
    tested = tested_by(confirming, read_tested(confirming, reader))
    named = {record.name: record for record in searched}
    rows = []
    for entry in confirming.plain["methods"]:
        label = entry["label"]
        candidate = candidate_of(entry, named)
        role = "baseline" if entry["name"] == BASELINE else "default"
        if candidate is not None:
            role = "candidate"
        rows.append(_row(label, role, candidate, records.complete.of(label), tested[label]))
    rows.sort(key=lambda row: ROLES.index(row.role))
    mended = tuple(mended_code(searched))
    return Confirmation(confirming, tuple(rows), search, records, tested, mended)


def search_of(study: StudyFolder) -> StudyFolder:
    """The study that it confirms, whose models have the form of its own; the study itself if it
    confirms none."""
    if study.confirms is None:
        return study
    directory = study.directory.with_name(study.directory.name.removesuffix(SUFFIX))
    return replace(open_directory(directory, directory.name), form=study.serves)


def _row(
    label: str,
    role: str,
    candidate: TrialRecord | None,
    records: Iterable[TrialRecord],
    tested: Mapping[int, Tested],
) -> Confirmed:
    done = tuple(records)
    opened = [tested[record.number] for record in done if record.number in tested]
    tests = tuple(test.metrics for test in opened)
    shifts: dict[str, tuple[dict[str, float], ...]] = {}
    sizes = {}
    dropped = {}
    shared = {}
    for test in opened:
        for name, shifted in test.shifts.items():
            shifts[name] = (*shifts.get(name, ()), shifted.metrics)
            dropped[name] = shifted.dropped
            sizes[name] = shifted.samples
            if shifted.shared is not None:
                shared[name] = f"shift {name}: {shifted.shared}"
    said = tuple(shared.values())
    return Confirmed(label, role, candidate, done, tests, shifts, sizes, dropped, said)


def candidate_of(
    entry: Mapping[str, Any], searched: Mapping[str, TrialRecord]
) -> TrialRecord | None:
    """The trial that an entry of `methods` retrains; None for a default.

    Raises SpecError if the study's trial has other values.
    """
    found = re.fullmatch(rf"(.+)_(\d{{4,}})({DEFAULT})?", entry["label"])
    if found is None:
        return None
    record = searched.get(f"{found[1]}/{found[2]}")
    if record is None and found[3]:
        return None  # the default of a method whose label ends in a number
    values = entry.get("values", {})
    if record is None or not record.params.items() <= values.items():
        raise SpecError(
            "study.yaml",
            f"methods.{entry['label']}",
            "no trial of the study has these values; another study has taken its name",
            "Move one of them away.",
        )
    return record


# ---- the names of what is retrained --------------------------------------------------------------


def candidate_label(record: TrialRecord) -> str:
    """The label of a retrained trial: `focal_0007`; `_default` follows if it has these values."""
    return f"{record.label}_{record.number:04d}"


def default_label(label: str) -> str:
    """The label of a method's default: `focal_default`."""
    return label + DEFAULT


def default_texts(found: Confirmation) -> dict[str, str]:
    """Whose settings each default is, by label: `published default (Mukhoti et al. 2020)`."""
    from study.schema.recommendations import standing, standing_text

    spec = found.study.spec
    labels = [row.label for row in found.rows if row.role == "default"]
    return {label: standing_text(standing(spec.trial(label).method)) for label in labels}


def default_notes(found: Confirmation) -> list[str]:
    """A line for each row with its method's default values, also where the search selected them."""
    texts = default_texts(found)
    for row in found.rows:
        if row.candidate is not None and row.label.endswith(DEFAULT):
            texts[row.label] = "has its method's default values"
    return [f"{row.name}: {texts[row.label]}" for row in found.rows if row.label in texts]


# ---- summaries -----------------------------------------------------------------------------------


def moments(values: Sequence[Mapping[str, float]]) -> dict[str, Moments]:
    """Mean and standard deviation over seeds of every metric that all of them have."""
    found = {}
    for name in values[0] if values else ():
        if all(name in row for row in values):
            column = [row[name] for row in values]
            std = statistics.stdev(column) if len(column) > 1 else math.nan
            found[name] = Moments(statistics.fmean(column), std)
    return found


def front_on_test(rows: Iterable[Confirmed], objectives: Sequence[Objective]) -> list[str]:
    """The labels whose mean test values are not dominated, best by the first objective first.

    A label is left out if an objective is undefined for one of its seeds (nothing above 99%
    confidence, say).
    """
    means = []
    for row in rows:
        values = {name: value.mean for name, value in moments(row.tests).items()}
        means.append(TrialRecord(row.label, 0, "complete", {}, values))
    return [record.label for record in front(measured_in(means, objectives), objectives)]
