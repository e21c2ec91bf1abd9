"""Floors and shrinkage: these depend on the number of samples in a confirmation's splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from study.answer.confirmation import Confirmation, Confirmed, moments
from study.answer.networks import networks_on_test, networks_on_validation
from study.schema.objective import plain_name
from study.store.files import stored_predictions
from study.store.study import StudyFolder
from study.uncertainty.bootstrap import RESAMPLES, by_prefix, logits_of, prefixed
from study.uncertainty.equal_sizes import DRAWS, RESIZED, Rows, means_of_rows, rows_drawn
from study.uncertainty.intervals import LEVEL, Floor
from study.uncertainty.methods import NetworkPredictions, floors_over_seeds
from trainables.metrics import describe
from trainables.problems import FieldError

Networks = dict[str, list[NetworkPredictions]]  # by row
Floors = dict[str, dict[str, Floor]]  # by row and metric


@dataclass(frozen=True)
class Sizes:
    """Floors (means over the row's networks) and shrinkage, by row and metric.

    compared: what shrinkage compares. problems: files that are missing or altered, a sentence each;
    what needs them is absent.
    """

    validation: Floors
    test: Floors
    shrinkage: dict[str, dict[str, float]]
    compared: str
    problems: tuple[str, ...] = ()

    @property
    def floors(self) -> set[str]:
        """The metrics that have a floor."""
        return set[str]().union(*self.validation.values(), *self.test.values())

    def has_floor(self, metric: str) -> bool:
        return metric in self.floors


def sizes_of(
    found: Confirmation,
    wanted: Collection[str],
    shrunk: Collection[str],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Sizes:
    """The floors and the shrinkage of a confirmation.

    wanted: metrics whose floors on test are shown; shrunk: whose shrinkage, and floors on
    validation, are. 0 resamples give no floors.
    """
    problems: dict[str, None] = {}
    test = _read(lambda: networks_on_test(found), problems)
    floors: Floors = {}
    test_floors: Floors = {}
    search = found.search
    few = {split: search.recorded.too_few(split) for split in ("validation", "test")}
    if resamples:
        problems |= {f"no floors on {split}: {why}.": None for split, why in few.items() if why}
    if resamples and not few["validation"]:
        validation = _read(lambda: networks_on_validation(found.study, found.rows), problems)
        floors = _floors(validation, shrunk, resamples, level)
    if resamples and not few["test"]:
        test_floors = _floors(test, wanted, resamples, level)
    resize = Resize.of(search)
    shrinkage = {}
    for row in found.rows:
        try:
            shrinkage[row.label] = _shrinkage(search, row, test.get(row.label, []), shrunk, resize)
        except FieldError as error:
            problems[str(error)] = None
    return Sizes(floors, test_floors, shrinkage, _compared(shrunk, resize), tuple(problems))


def _read(networks: Callable[[], Networks], problems: dict[str, None]) -> Networks:
    try:
        return networks()
    except FieldError as error:
        problems[str(error)] = None
        return {}


def _floors(networks: Networks, wanted: Collection[str], resamples: int, level: float) -> Floors:
    return {
        label: floors_over_seeds(of, wanted, resamples, level) for label, of in networks.items()
    }


# ---- shrinkage -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resize:
    """The larger of validation and test, its samples, and the size of the smaller.

    unit: what the groups of the larger are called, if samples belong together. called: what
    samples are.
    """

    larger: str
    samples: int
    size: int
    unit: str | None = None
    called: str = "samples"

    @classmethod
    def of(cls, search: StudyFolder) -> Resize:
        sizes = {split: search.recorded.sizes[split] for split in ("validation", "test")}
        smaller, larger = sorted(sizes, key=lambda split: sizes[split])
        recorded = search.recorded
        unit = recorded.unit_in(larger)
        return cls(larger, sizes[larger], sizes[smaller], unit, recorded.called)

    @property
    def equal(self) -> bool:
        return self.samples == self.size

    @cached_property
    def _rows(self) -> Rows:
        """The rows that each draw takes of the larger split, where it has no groups."""
        return rows_drawn(self.samples, self.size)

    def errors(self, network: NetworkPredictions, names: Collection[str]) -> dict[str, float]:
        """The network's errors at the smaller size."""
        found: dict[str, float] = {}
        labels = network.predictions.arrays.labels
        groups = network.predictions.arrays.groups
        rows = self._rows if groups is None else rows_drawn(self.samples, self.size, groups)
        for prefix, own in by_prefix(names).items():
            logits = logits_of(network.predictions, prefix, network.temperature)
            found |= prefixed(prefix, means_of_rows(logits, labels, rows, own))
        return found


def _shrinkage(
    search: StudyFolder,
    row: Confirmed,
    networks: Sequence[NetworkPredictions],
    shrunk: Collection[str],
    resize: Resize,
) -> dict[str, float]:
    """How much better the candidate scored in the search than on test, at equal sizes."""
    if row.candidate is None or not row.tests:
        return {}
    tests = {name: value.mean for name, value in moments(row.tests).items()}
    searched = row.candidate.metrics
    names = [name for name in shrunk if name in tests and name in searched]
    biased = [] if resize.equal else _biased(names)
    if biased and resize.larger == "test":
        errors = [resize.errors(network, biased) for network in networks]
        for name in biased:
            tests[name] = fmean(of[name] for of in errors) if errors else math.nan
    elif biased:
        network = NetworkPredictions(stored_predictions(search, row.candidate))
        searched = searched | resize.errors(network, biased)
    values = {name: describe(name).sign * (tests[name] - searched[name]) for name in names}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _biased(names: Collection[str]) -> list[str]:
    """The metrics compared at equal sizes."""
    return [name for name in names if plain_name(name) in RESIZED]


def _compared(names: Collection[str], resize: Resize) -> str:
    """The caption's words on what shrinkage compares; none where the splits are of one size."""
    errors = [name for name in names if describe(name).kind == "calibration"]
    if resize.equal or not errors:
        return ""
    drawn = _biased(errors)
    said = []
    what = f"{resize.size:,} are drawn without replacement"
    if resize.unit is not None:
        what = f"about {resize.size:,} are drawn, whole {resize.unit} without replacement"
    if labels := _labels(drawn):
        said.append(
            f"shrinkage of {labels} compares {resize.size:,} {resize.called} with {resize.size:,},"
            f" since fewer {resize.called} give larger errors: of {resize.larger}'s"
            f" {resize.samples:,}, {what} (mean of {DRAWS} draws)."
        )
    if others := _labels([name for name in errors if name not in drawn]):
        said.append(
            f"shrinkage of {others} compares errors of {resize.size:,} and {resize.samples:,}"
            f" {resize.called} as they are."
        )
    return " ".join(said)


def _labels(names: Collection[str]) -> str:
    return ", ".join(dict.fromkeys(describe(name).label for name in names))
