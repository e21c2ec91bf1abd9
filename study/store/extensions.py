"""The code of a user's own that trials were trained with: recorded with each trial, before it
trains."""

from __future__ import annotations

from collections.abc import Iterable

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


def refuse_changed_code(folder: str | None, records: Iterable[TrialRecord], file_name: str) -> None:
    """Raise SpecError naming a file of the extensions folder that is not what a trial was trained
    with.

    Any trial with an attempt counts, a running or failed one too. Files that none has used may
    change.
    """
    first = first_users(records)
    for file in changed_files(
        folder, {file: record.extensions[file] for file, record in first.items()}
    ):
        raise SpecError(
            file_name,
            "extensions",
            f"{file} has changed since trial {first[file].name} was trained with it",
            "Restore it, or copy it to a new name.",
        )
