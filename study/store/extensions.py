"""The code of a user's own that trials were trained with: recorded with each trial, before it
trains."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from study.schema.errors import SpecError
from study.store.trials import TrialRecord
from trainables.plugins import changed_files


def first_users(records: Iterable[TrialRecord]) -> dict[str, TrialRecord]:
    """Of each extension file, the first trial that has used it."""
    first: dict[str, TrialRecord] = {}
    for record in records:
        for file in record.extensions if record.attempt else ():
            first.setdefault(file, record)
    return first


def changed_code(folder: str | Path | None, records: Iterable[TrialRecord]) -> dict[str, str]:
    """The files that a folder has otherwise, or has not, each with the first trial that has used
    it.

    Any trial with an attempt counts, a running or failed one too. Files that none has used may
    change. Nothing of them is imported.
    """
    first = first_users(records)
    recorded = {file: record.extensions[file] for file, record in first.items()}
    return {file: first[file].name for file in changed_files(folder, recorded)}


def refuse_changed_code(folder: str | None, records: Iterable[TrialRecord], file_name: str) -> None:
    """Raise SpecError naming a file of the extensions folder that is not what a trial was trained
    with; see `changed_code`."""
    for file, trial in changed_code(folder, records).items():
        raise SpecError(
            file_name,
            "extensions",
            f"{file} has changed since trial {trial} was trained with it",
            "Restore it, or copy it to a new name.",
        )
