"""The code of a user's own that trials were trained with: recorded with each trial, before it
trains."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from study.schema.errors import SpecError
from study.store.trials import TrialRecord
from trainables.plugins import changed_files

SHOWN = 8  # characters of a digest


def users_of_code(records: Iterable[TrialRecord]) -> dict[str, TrialRecord]:
    """Of each extension file, the trial whose version holds: the latest retry that has used it, as
    it may have been mended for that; else the first trial."""
    found: dict[str, TrialRecord] = {}
    used = [record for record in records if record.attempt]
    retries = [record for record in used if record.is_retry]
    for record in sorted(retries, key=lambda one: -(one.started or 0.0)) + used:
        for file in record.extensions:
            found.setdefault(file, record)
    return found


def changed_code(folder: str | Path | None, records: Iterable[TrialRecord]) -> dict[str, str]:
    """The files that a folder has otherwise than they hold (`users_of_code`), or has not, each with
    the trial that has used it.

    Any trial with an attempt counts, a running or failed one too. Files that none has used may
    change. Nothing of them is imported.
    """
    users = users_of_code(records)
    recorded = {file: record.extensions[file] for file, record in users.items()}
    return {file: users[file].name for file in changed_files(folder, recorded)}


def refuse_changed_code(
    folder: str | None,
    records: Collection[TrialRecord],
    file_name: str,
    retried: Collection[TrialRecord] = (),
) -> None:
    """Raise SpecError naming a file of the extensions folder that is not what a trial was trained
    with; see `changed_code`.

    retried: failed trials that are to be retried, for which what they use may have been mended, but
    for nothing that runs.
    """
    for file, trial in changed_code(folder, records).items():
        running = [one.name for one in records if one.is_open and file in one.extensions]
        mend = "Restore it, or copy it to a new name."
        if any(file in record.extensions for record in retried):
            if not running:
                continue
            trial = running[0]
            mend = f"Restore it until {trial} has ended, then mend it."
        elif not running and any(
            record.state == "failed" and file in record.extensions for record in records
        ):
            mend = "Restore it, copy it to a new name, or retry failed trials: --retry-failed."
        raise SpecError(
            file_name,
            "extensions",
            f"{file} has changed since trial {trial} was trained with it",
            mend,
        )


def mended_code(records: Iterable[TrialRecord]) -> Iterator[str]:
    """What holds where a file was mended for a retry: one sentence a file and method, without its
    full stop, of how many trials had which version."""
    by_file: dict[tuple[str, str], dict[str, list[TrialRecord]]] = {}
    for record in records:
        for file, digest in record.extensions.items() if record.attempt else ():
            versions = by_file.setdefault((record.label, file), {})
            versions.setdefault(digest, []).append(record)
    for (label, file), versions in by_file.items():
        if len(versions) > 1 and any(one.is_retry for own in versions.values() for one in own):
            counts = [
                f"{len(own)} with {digest[:SHOWN]} ({_first_names(own)})"
                for digest, own in versions.items()
            ]
            has = f"{label} has trials {', '.join(counts)}"
            yield f"own code was mended for a retry ({file}): {has}"


def _first_names(records: list[TrialRecord]) -> str:
    return records[0].name + (f" and {len(records) - 1} more" if records[1:] else "")
