"""The code of a user's own that trials were trained with: recorded with each attempt, before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from study.schema.errors import SpecError
from study.store.trials import TrialRecord
from trainables.plugins import changed_files


def files_of(trial: Mapping[str, Any]) -> dict[str, str]:
    """{file: sha256} of the extension files of a trial's config, in plain values."""
    from trainables.config import TrialConfig

    if trial.get("extensions") is None:
        return {}
    # Read again: another study's extensions may have been in use since.
    return TrialConfig.from_mapping(trial).extension_digests()


def first_users(records: Iterable[TrialRecord]) -> dict[str, TrialRecord]:
    """Of each extension file, the first trial that has used it."""
    first: dict[str, TrialRecord] = {}
    for record in records:
        for file in record.extensions if record.attempt else ():
            first.setdefault(file, record)
    return first


def refuse_changed_code(folder: str | None, records: Iterable[TrialRecord], file_name: str) -> None:
    """Raise SpecError naming a file of the extensions folder that is not what a trial was trained with.

    Any trial with an attempt counts, a running or failed one too. Files that none has used may change.
    """
    first = first_users(records)
    for file in changed_files(
        folder, {file: record.extensions[file] for file, record in first.items()}
    ):
        problem = (
            f"{file} has changed since trial {first[file].name} was trained with it. Restore it, or copy it to a"
            " new name."
        )
        raise SpecError(file_name, "extensions", problem)
