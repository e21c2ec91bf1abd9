"""Openings of the sealed test split and the results on it, as recorded in the ledger per label.

An opening is recorded before the split is read, its result after. A kill in between leaves an
opening without a result, which still counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from study.store.confirmed import can_confirm_itself
from study.store.files import checked_file
from study.store.ledger_facts import is_opening
from study.store.ledger_reader import LedgerReader
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from trainables.problems import FieldError

if TYPE_CHECKING:
    from trainables.outputs.predictions import Predictions

TEST_FILE = "test.npz"  # predictions on the test split, in the attempt's directory
OPENINGS = "openings"  # keys of the notes
TESTED = "tests/"  # one per trial


@dataclass(frozen=True)
class Opening:
    """One opening. `number` counts over the study, `run` counts the runs of `confirm` that opened
    anything."""

    number: int
    trial: int
    attempt: int
    run: int
    time: float  # seconds since 1970


@dataclass(frozen=True)
class Shifted:
    """A model's results on a shift set; `data` is the digest of the set, `samples` its size without
    the `dropped`, which train or validation has too."""

    metrics: dict[str, float]
    data: str
    samples: int
    dropped: int
    shared: str | None = None  # what is said of groups that train or validation has too


@dataclass(frozen=True)
class Tested:
    """The results of an opening on the test split and the shift sets, with the files' digests."""

    opening: int
    metrics: dict[str, float]
    temperature: float  # fitted on the whole validation split; used for ts_ metrics
    digests: dict[str, str]
    time: float  # seconds since 1970
    shifts: dict[str, Shifted] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """What the ledger keeps of it."""
        plain = asdict(self)
        for shifted in plain["shifts"].values():
            if shifted["shared"] is None:
                del shifted["shared"]
        return plain

    @property
    def flat(self) -> dict[str, float]:
        """Metrics under their MLflow names: test/ece, shift/NAME/ece."""
        shifts = {
            f"shift/{name}/{key}": value
            for name, of in self.shifts.items()
            for key, value in of.metrics.items()
        }
        return {f"test/{key}": value for key, value in self.metrics.items()} | shifts


def openings_in(notes: Mapping[str, Any]) -> list[Opening | None]:
    """The openings in a label's notes; None for an invalid one."""
    found: list[Opening | None] = []
    for plain in notes.get(OPENINGS, []):
        found.append(Opening(**plain) if is_opening(plain) else None)
    return found


def tested_in(notes: Mapping[str, Any]) -> dict[int, Tested]:
    """The test results in a label's notes, by trial number."""
    found = {}
    for key, plain in notes.items():
        if key.startswith(TESTED):
            shifts = {name: Shifted(**of) for name, of in plain["shifts"].items()}
            found[int(key.removeprefix(TESTED))] = Tested(**{**plain, "shifts": shifts})
    return dict(sorted(found.items()))


def came_to_nothing(study: StudyFolder) -> int:
    """How many openings of a confirmation have no result because of a kill."""
    return sum(len(openings_in(of)) - len(tested_in(of)) for of in study.reader.notes().values())


def read_tested(
    study: StudyFolder, reader: LedgerReader | None = None
) -> dict[str, dict[int, Tested]]:
    """Test results by label and trial number; none unless the study is a confirmation.

    reader: one that holds the study's ledger.
    """
    if not study.is_confirmation:
        return {label: {} for label in study.labels}
    notes = (reader or study.reader).notes()
    return {label: tested_in(of) for label, of in notes.items()}


def tested_predictions(study: StudyFolder, record: TrialRecord) -> Predictions:
    """What an opening wrote of a confirmation's trial on the test split; opens nothing.

    Raises FieldError if the study is none, if the trial was not measured there, or if the file is
    missing or altered.
    """
    if not study.is_confirmation:
        found = f"{study.name} is a search, which never opens the test split"
        mend = f"Open {study.name}-confirm, made by `calstudy confirm {study.name}`."
        if can_confirm_itself(study):
            found = f"{study.name} was not measured on the test split"
            mend = f"Run: {study.command('confirm')}"
        raise FieldError("split", found, mend)
    tested = read_tested(study)[record.label].get(record.number)
    if tested is None:
        raise FieldError(
            record.name,
            "was not measured on the test split",
            f"Run: {study.command('confirm')}",
        )
    return predictions_of(study, record, tested)


def predictions_of(study: StudyFolder, record: TrialRecord, tested: Tested) -> Predictions:
    """What the opening with this result wrote. Raises FieldError if it is missing or altered."""
    from trainables.outputs.predictions import Predictions

    return Predictions.stored(checked_file(study, record, TEST_FILE, tested.digests))
