"""What a study's own record says of its confirmation: a copy without that folder says that test was opened."""

from __future__ import annotations

from pathlib import Path

from study.store.study import Study, open_directory, write_study_file
from study.store.study_file import CONFIRMATION

SUFFIX = "-confirm"
RESTORE = "Restore that folder"


def confirming_directory(directory: Path) -> Path:
    """The directory of a study's confirmation."""
    return directory.with_name(directory.name + SUFFIX)


def confirming_study(study: Study) -> Study | None:
    """The study's confirmation, if it is beside it."""
    directory = confirming_directory(study.directory)
    if not (directory / "study.yaml").is_file():
        return None
    found = open_directory(directory, directory.name)
    return found if found.confirms == study.name else None


def recorded_openings(search: Study) -> int:
    """How often its record says that its test split was opened."""
    return int(search.recorded.get(CONFIRMATION, {}).get("openings", 0))


def missing_confirmation(study: Study) -> str | None:
    """What is said of a study that records a confirmation which is not beside it; None of any other."""
    openings = recorded_openings(study)
    if not openings or confirming_study(study) is not None:
        return None
    name, times = study.recorded[CONFIRMATION]["name"], f"{openings:,} time{'s' * (openings != 1)}"
    return (
        f"{study.name} was confirmed in {name}, which is not here"
        f" ({confirming_directory(study.directory)}); the test split has been opened {times}"
    )


def record_openings(directory: Path, openings: int) -> None:
    """Write into a search's study.yaml how often test was opened, unless it says so. Under its lock."""
    search = open_directory(directory, directory.name)
    if openings > recorded_openings(search):
        confirmation = {"name": confirming_directory(directory).name, "openings": openings}
        recorded = {**search.recorded, CONFIRMATION: confirmation}
        write_study_file(directory, {**search.plain, "recorded": recorded})
