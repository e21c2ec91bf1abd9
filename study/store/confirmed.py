"""What a study's own record says of its confirmation: a copy without that folder says that test was
opened."""

from __future__ import annotations

from pathlib import Path

from study.store.recorded import Opened
from study.store.study import Study, open_directory, record_facts

SUFFIX = "-confirm"
RESTORE = "Restore that folder"


def confirming_directory(directory: Path) -> Path:
    """The directory of a study's confirmation."""
    return directory.with_name(directory.name + SUFFIX)


def confirming_study(study: Study, opened: Study | None = None) -> Study | None:
    """The study's confirmation, if it is beside it. opened: as it was opened before."""
    directory = confirming_directory(study.directory)
    if not (directory / "study.yaml").is_file():
        return None
    found = open_directory(directory, directory.name, opened)
    return found if found.confirms == study.name else None


def recorded_openings(search: Study) -> int:
    """How often its record says that its test split was opened."""
    return search.recorded.confirmation.openings if search.recorded.confirmation else 0


def matters_at_opening(search: Study) -> dict[str, float]:
    """What mattered in each objective when its test split was opened; of a study that was not
    opened, what does now."""
    return search.recorded.matters_at_opening or search.matters


def missing_confirmation(study: Study, found: Study | None = None) -> str | None:
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
    if openings > recorded_openings(search):
        record_facts(
            directory,
            search,
            confirmation=Opened(confirming_directory(directory).name, openings),
            matters_at_opening=matters_at_opening(search),
        )
