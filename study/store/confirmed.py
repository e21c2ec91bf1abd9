"""What a study's own record says of its confirmation: a copy without that folder says that test was
opened.

A study without a search is its own confirmation: its trials are measured, and nothing is retrained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from study.store.recorded import Opened
from study.store.study import StudyFolder, open_directory, record_facts
from study.store.trials import TrialRecord, Trials
from trainables.problems import FieldError

SUFFIX = "-confirm"
RESTORE = "Restore that folder"


def confirming_directory(directory: Path) -> Path:
    """The directory of a study's confirmation."""
    return directory.with_name(directory.name + SUFFIX)


def can_confirm_itself(study: StudyFolder) -> bool:
    """Whether nothing is selected in a study: its trials are seeds of fixed settings, trained to
    their end, whose models are kept."""
    spaces = [space.space.values() for space in study.recorded_spaces.values()]
    return not (
        any(isinstance(entry, dict) for entry in chain(*spaces))  # a plain value is fixed
        or study.plain.get("early_stopping")
        or study.plain.get("keep_models", "all") != "all"
        or study.recorded.pruned
        or study.confirms
    )


def confirming_study(study: StudyFolder, opened: StudyFolder | None = None) -> StudyFolder | None:
    """The study's confirmation, if it is beside it or itself. opened: as it was opened before."""
    if study.confirms_itself:
        return study
    directory = confirming_directory(study.directory)
    if not (directory / "study.yaml").is_file():
        return None
    found = open_directory(directory, directory.name, opened)
    return found if found.confirms == study.name else None


def recorded_openings(search: StudyFolder) -> int:
    """How often its record says that its test split was opened."""
    return search.recorded.confirmation.openings if search.recorded.confirmation else 0


def matters_at_opening(search: StudyFolder) -> dict[str, float]:
    """What mattered in each objective when its test split was opened; of a study that was not
    opened, what does now."""
    return search.recorded.matters_at_opening or search.matters


def check_calibrators(search: StudyFolder, names: Sequence[str]) -> None:
    """Raise FieldError if test was opened before these calibrators were recorded."""
    known = search.recorded.calibrators_at_opening or []
    late = [name for name in names if name not in known]
    if late and (count := recorded_openings(search)):
        times = f"{count:,} time{'s' * (count != 1)}"
        found = f"{', '.join(late)}: test was opened {times} before it was named"
        mend = "Leave it out; `calstudy export --calibrator` says what it changes on validation."
        raise FieldError("--calibrators", found, mend)


def record_calibrators(directory: Path, names: Sequence[str]) -> None:
    """Write which calibrators are scored on test, until it is opened. Under the search's lock."""
    search = open_directory(directory, directory.name)
    check_calibrators(search, names)
    if names and not recorded_openings(search):
        record_facts(directory, search, calibrators_at_opening=list(names))


def missing_confirmation(study: StudyFolder, found: StudyFolder | None = None) -> str | None:
    """What is said of a study that records a confirmation which is not beside it; else None.

    found: its confirmation, if it was opened already.
    """
    opened = study.recorded.confirmation
    if opened is None or not opened.openings or (found or confirming_study(study)):
        return None
    times = f"{opened.openings:,} time{'s' * (opened.openings != 1)}"
    return (
        f"{study.name} was confirmed in {opened.name}, which is not here"
        f" ({confirming_directory(study.directory)}); the test split has been opened {times}"
    )


def record_openings(directory: Path, openings: int) -> None:
    """Write into a search's study.yaml how often test was opened, unless it says so. Under its
    lock."""
    search = open_directory(directory, directory.name)
    if openings <= recorded_openings(search):
        return
    opened = Opened(confirming_directory(directory).name, openings)
    if search.confirms_itself:
        assert search.recorded.confirmation is not None
        opened = replace(search.recorded.confirmation, openings=openings)
    record_facts(
        directory, search, confirmation=opened, matters_at_opening=matters_at_opening(search)
    )


def record_seeds(directory: Path) -> StudyFolder:
    """Make a study its own confirmation: write how many trials each label has, until test is
    opened. Under its lock. Returns it as it is then."""
    study = open_directory(directory, directory.name)
    if recorded_openings(study):
        return study
    counted = {label: len(found) for label, found in study.records().by_label.items()}
    record_facts(directory, study, confirmation=Opened(study.name, 0, counted))
    return open_directory(directory, directory.name)


def added_seeds(study: StudyFolder, records: Trials) -> dict[str, int]:
    """How many trials of each label began after test was opened, of a study that confirms itself;
    only labels that have some."""
    added = {
        label: sum(added_later(study, record) for record in found)
        for label, found in records.by_label.items()
    }
    return {label: count for label, count in added.items() if count}


def added_later(study: StudyFolder, record: TrialRecord) -> bool:
    """Whether a trial of a study that confirms itself began after test was opened."""
    opened = study.recorded.confirmation
    if opened is None or not opened.openings or not study.confirms_itself:
        return False
    return record.number >= (opened.seeds or {}).get(record.label, 0)
