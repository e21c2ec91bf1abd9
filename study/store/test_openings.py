"""Openings of the sealed test split, and what was measured on it, as a label's part of the ledger has them.

An opening is written before the split is read; what was measured, after. A kill in between leaves an opening that came
to nothing: it counts as one all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from study.store.ledger import read_notes
from study.store.study import Study

TEST_FILE = "test.npz"  # what a model answers on the test split, in its attempt's directory
OPENINGS, TESTED = "openings", "tests/"  # the keys of the notes; of the latter one for each trial


@dataclass(frozen=True)
class Opening:
    """One opening. `number` counts through the study, `run` the runs of `confirm` that opened anything."""

    number: int
    trial: int
    attempt: int
    run: int
    time: float  # seconds since 1970


@dataclass(frozen=True)
class Shifted:
    """What a trial's model does on a set of `shift:`; `data` is the digest of that set, `samples` its size."""

    metrics: dict[str, float]
    data: str
    samples: int | None = None


@dataclass(frozen=True)
class Tested:
    """What was measured by an opening: of the test split, and of the sets of `shift:`, with the files' digests."""

    opening: int
    metrics: dict[str, float]
    temperature: float  # fitted on the whole validation split; behind the metrics that begin with ts_
    digests: dict[str, str]
    time: float  # seconds since 1970
    shifts: dict[str, Shifted] = field(default_factory=dict)

    @property
    def flat(self) -> dict[str, float]:
        """As it is tracked: test/ece, shift/NAME/ece."""
        shifts = {f"shift/{name}/{key}": value for name, of in self.shifts.items() for key, value in of.metrics.items()}
        return {f"test/{key}": value for key, value in self.metrics.items()} | shifts

    def to_plain(self) -> dict[str, Any]:
        """What `tested_in` reads back."""
        return asdict(self)


def openings_in(notes: Mapping[str, Any]) -> list[Opening | None]:
    """The openings of a label's notes; None for one that does not say what it opened."""
    found: list[Opening | None] = []
    for plain in notes.get(OPENINGS, []):
        try:
            found.append(Opening(**plain))
        except TypeError:
            found.append(None)
    return found


def tested_in(notes: Mapping[str, Any]) -> dict[int, Tested]:
    """By trial number, what a label's notes have of the test split."""
    found = {}
    for key, plain in notes.items():
        if key.startswith(TESTED):
            shifts = {name: Shifted(**of) for name, of in plain["shifts"].items()}
            found[int(key.removeprefix(TESTED))] = Tested(**{**plain, "shifts": shifts})
    return dict(sorted(found.items()))


def came_to_nothing(study: Study) -> int:
    """How many openings of a confirmation have no figures: a kill came between."""
    notes = read_notes(study.directory, study.ledger, study.name, list(study.labels))
    return sum(len(openings_in(of)) - len(tested_in(of)) for of in notes.values())


def read_tested(study: Study) -> dict[str, dict[int, Tested]]:
    """By label and trial number, as the ledger has it now; nothing of a study that confirms none."""
    if study.confirms is None:
        return {label: {} for label in study.labels}
    notes = read_notes(study.directory, study.ledger, study.name, list(study.labels))
    return {label: tested_in(of) for label, of in notes.items()}
